package correct

import (
	"cmp"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/analysis/certificate"
	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/measure"
)

// CertificateFlags name a certificate of a sensor and the key that it must be signed by.
type CertificateFlags struct {
	Path string
	// file of a public key; empty to check that nothing was changed, not who signed
	Key string
}

// Flags adds both flags to fl.
func (f *CertificateFlags) Flags(fl *pflag.FlagSet) {
	fl.StringVar(&f.Path, "certificate", "", "the sensor, by a certificate of it (wattmark certificate)")
	f.KeyFlag(fl)
}

// KeyFlag adds the flag of the key to fl.
func (f *CertificateFlags) KeyFlag(fl *pflag.FlagSet) {
	fl.StringVar(&f.Key, "certificate-key", "", "public key that the certificate must be signed by")
}

// Open reads and checks the certificate. Errors name the file and wrap
// certificate.ErrRefused.
func (f *CertificateFlags) Open() (*certificate.Certificate, error) {
	var key *certificate.Key
	b, err := os.ReadFile(cmp.Or(f.Key, f.Path))
	if err == nil && f.Key != "" {
		if key, err = certificate.ParsePublic(string(b)); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Key, err)
		}
		b, err = os.ReadFile(f.Path)
	}
	if err != nil {
		return nil, err
	}
	c, err := certificate.Open(b, key, time.Now())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	return c, nil
}

// Read is Open with a warning on standard error where no key was named: then it is not known
// who signed.
func (f *CertificateFlags) Read(a *cli.App) (*certificate.Certificate, error) {
	c, err := f.Open()
	if err == nil && f.Key == "" {
		fmt.Fprintf(a.Err, "wattmark: whether %q signed %s was not checked: name the public key with --certificate-key\n",
			measure.Printable(c.Issuer.Name), f.Path)
	}
	return c, err
}

// Fits refuses a certified profile for another GPU or driver; an empty argument is not
// compared, and neither is a profile of another origin.
func (f *CertificateFlags) Fits(p *sensor.Profile, uuid, driver string) error {
	if f.Path == "" {
		return nil
	}
	err := (&certificate.Certificate{Sensor: *p}).Covers(uuid, driver, "")
	if err != nil {
		err = fmt.Errorf("%s: %w", f.Path, err)
	}
	return err
}
