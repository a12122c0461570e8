// Package certificate makes and checks signed certificates of a GPU's power sensor.
//
// A certificate is a [Certificate]: the profile that analysis/sensor identified, the conditions, the errors by class
// of load, and the SHA-256 of every file it rests on. It is the predicate of an in-toto statement (v1) whose subjects
// are those files, in a DSSE envelope signed by Ed25519: what cosign and in-toto read. [Schema] is its JSON schema.
//
//	Certificate → Seal → envelope → Open(trusted key, time) → Certificate → Covers(GPU)
//
// The package does no I/O. All times are UTC; every U is expanded (k = 2).
package certificate

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/measure"
)

// Version is the version of the form; Open refuses another one.
const Version = 1

// The types of the envelope.
const (
	payloadType   = "application/vnd.in-toto+json"
	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "https://github.com/wattmark/wattmark/sensor-certificate/v1"
)

// Schema is the JSON schema (2020-12) of the payload.
//
//go:embed schema.json
var Schema []byte

// Certificate describes one field of the sensor of one GPU under one driver.
type Certificate struct {
	Version int       `json:"certificate_version"`
	Made    time.Time `json:"made"`
	Expires time.Time `json:"expires"`
	Maker   string    `json:"maker"` // the program and its version
	Issuer  Issuer    `json:"issuer"`
	// Sensor names GPU, UUID, driver and field, and has period, window or lag, delay,
	// share of the time seen (duty), gain and offset, each with U.
	Sensor     sensor.Profile `json:"sensor"`
	Notes      []string       `json:"notes"` // limits of the identification
	Conditions Conditions     `json:"conditions"`
	Errors     []Error        `json:"errors"`
	Apply      []string       `json:"how_to_apply"`
	// Source are the arguments that read the files again.
	Source Source `json:"source"`
	// Files are the recordings, by their names within one folder.
	Files []File `json:"-"`
}

// Issuer is who signed.
type Issuer struct {
	Name       string    `json:"name"`
	PublicKey  string    `json:"public_key"` // base64 of 32 bytes
	KeyExpires time.Time `json:"key_expires"`
}

// Conditions are those of the recording. The first six have the names of MLCommons'
// proposal of an energy schema (mlcommons/inference, issue 2558).
type Conditions struct {
	Method        string          `json:"measurement_method"` // of the sensor: nvml
	Reference     string          `json:"reference_method"`   // external_analyzer, or none
	SamplingRate  measure.Number  `json:"sampling_rate_hz"`   // of the polls
	Stabilization measure.Number  `json:"thermal_stabilization_seconds"`
	Power         Power           `json:"gpu_power_draw_watts"` // by the sensor
	Energy        measure.Joule   `json:"total_energy_joules"`  // by the sensor over all polls
	Duration      measure.Seconds `json:"duration_s"`
	Readings      int             `json:"readings"`
	Load          string          `json:"load_from"`
	UClock        measure.Seconds `json:"clock_u_s"` // between readings and load
	Coverage      int             `json:"coverage_factor"`
}

// Power is a mean and a peak.
type Power struct {
	Mean measure.Watt `json:"mean"`
	Peak measure.Watt `json:"peak"`
}

// Basis is where an error is from.
type Basis string

// The bases: held against a meter, or what the sensor's model gives.
const (
	Metered  Basis = "meter"
	Modelled Basis = "model"
)

// Error is the error of the sensor for a class of load.
type Error struct {
	Class string `json:"class"`
	Basis Basis  `json:"basis"`
	// Percent is that of the energy, within Low to High at 95 %.
	Percent measure.Number `json:"error_pct"`
	Low     measure.Number `json:"low_pct"`
	High    measure.Number `json:"high_pct"`
	// Period is that of the assumed load, zero where it was measured.
	Period measure.Seconds `json:"load_period_s,omitempty"`
}

// Source holds the arguments that read the files again.
type Source struct {
	Kind      string          `json:"kind"` // csv, recording or pmd
	From      measure.Seconds `json:"from_s"`
	To        measure.Seconds `json:"to_s"`
	UTCOffset measure.Seconds `json:"utc_offset_s"`
	Shift     measure.Seconds `json:"meter_shift_s"` // added to the meter's times, as found or given
	NoMeter   bool            `json:"no_meter"`
}

// File is a file of the recording.
type File struct {
	Name   string `json:"name"`
	Digest Digest `json:"digest"`
}

// Digest is a SHA-256 in hexadecimal digits.
type Digest struct {
	SHA256 string `json:"sha256"`
}

// FileOf hashes a file's content.
func FileOf(name string, content []byte) File {
	sum := sha256.Sum256(content)
	return File{Name: name, Digest: Digest{SHA256: hex.EncodeToString(sum[:])}}
}

// statement is the payload.
type statement struct {
	Type          string      `json:"_type"`
	Subject       []File      `json:"subject"`
	PredicateType string      `json:"predicateType"`
	Predicate     Certificate `json:"predicate"`
}

// envelope is DSSE.
type envelope struct {
	PayloadType string      `json:"payloadType"`
	Payload     []byte      `json:"payload"`
	Signatures  []signature `json:"signatures"`
}

type signature struct {
	KeyID string `json:"keyid"`
	Sig   []byte `json:"sig"`
}

// ErrRefused is wrapped by every reason not to believe a certificate.
var ErrRefused = errors.New("certificate refused")

// refuse returns an error that wraps ErrRefused.
func refuse(format string, a ...any) error {
	return fmt.Errorf("%w: %w", ErrRefused, fmt.Errorf(format, a...))
}

// signed returns the bytes that DSSE signs.
func signed(payload []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(payload), payload)
}

// Seal sets version and issuer and signs c by k, which must hold a private key and not
// have expired at c.Made.
func Seal(c *Certificate, k *Key) ([]byte, error) {
	if k.private == nil {
		return nil, errors.New("certificate: this is a public key: sign by the private one")
	}
	if !c.Made.Before(k.Expires) {
		return nil, refuse("the key of %s expired on %s: make another", k.Name, k.Expires.Format(time.DateOnly))
	}
	c.Version = Version
	c.Issuer = Issuer{k.Name, base64.StdEncoding.EncodeToString(k.Public), k.Expires}
	payload, err := json.Marshal(statement{statementType, c.Files, predicateType, *c})
	if err != nil {
		return nil, err
	}
	e := envelope{payloadType, payload, []signature{{k.ID(), ed25519.Sign(k.private, signed(payload))}}}
	b, err := json.MarshalIndent(e, "", " ")
	return append(b, '\n'), err
}

// Open returns the certificate in an envelope whose signature, form and dates hold at an
// instant. With a trusted key it is that one's; nil takes the key that the certificate
// names, which shows that nothing was changed, not who signed. Errors wrap ErrRefused.
func Open(b []byte, trusted *Key, now time.Time) (*Certificate, error) {
	var e envelope
	var s statement
	if err := strict(b, &e); err != nil {
		return nil, refuse("it is no DSSE envelope: %w", err)
	}
	if e.PayloadType != payloadType || len(e.Signatures) != 1 {
		return nil, refuse("an envelope of %q with %d signatures: want %q with one", e.PayloadType,
			len(e.Signatures), payloadType)
	}
	// Unknown fields of the payload belong to versions to come, the version decides.
	if err := json.Unmarshal(e.Payload, &s); err != nil {
		return nil, refuse("its payload is damaged: %w", err)
	}
	c := &s.Predicate
	c.Files = s.Subject
	if s.Type != statementType || s.PredicateType != predicateType || c.Version != Version {
		return nil, refuse("%s, %s, version %d: this program reads version %d of %s", s.Type, s.PredicateType,
			c.Version, Version, predicateType)
	}
	own, err := base64.StdEncoding.DecodeString(c.Issuer.PublicKey)
	if err != nil || len(own) != ed25519.PublicKeySize {
		return nil, refuse("its public key is none")
	}
	k := &Key{Name: c.Issuer.Name, Public: own, Expires: c.Issuer.KeyExpires}
	if trusted != nil {
		if !bytes.Equal(trusted.Public, k.Public) {
			return nil, refuse("it was signed by the key %s of %q, not by %s of %q", k.ID(), k.Name, trusted.ID(),
				trusted.Name)
		}
		k = trusted // whose dates count
	}
	switch {
	case !ed25519.Verify(k.Public, signed(e.Payload), e.Signatures[0].Sig):
		return nil, refuse("the signature does not fit the content: it was changed after it was signed")
	case !c.Made.Before(k.Expires) || !now.Before(k.Expires):
		return nil, refuse("the key of %s expired on %s", k.Name, k.Expires.Format(time.DateOnly))
	case !now.Before(c.Expires):
		return nil, refuse("it expired on %s: identify the sensor again", c.Expires.Format(time.DateOnly))
	}
	if err := c.Sensor.Validate(); err != nil {
		return nil, refuse("%w", err)
	}
	return c, nil
}

// strict decodes one JSON value with known fields alone.
func strict(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() {
		return errors.New("more than one value")
	}
	return nil
}

// Covers refuses a certificate of another GPU, driver or field; an empty argument is not
// compared. A driver compares by its version, without what follows a space; a UUID may be
// a beginning. Errors wrap ErrRefused.
func (c *Certificate) Covers(uuid, driver, field string) error {
	version := func(s string) string { v, _, _ := strings.Cut(s, " "); return v }
	s := &c.Sensor
	switch {
	case uuid != "" && !strings.HasPrefix(s.UUID, uuid):
		return refuse("it is of GPU %q, not of %q", s.UUID, uuid)
	case driver != "" && version(driver) != version(s.Driver):
		return refuse("it is of driver %q, not of %q: a driver may change what the sensor does", version(s.Driver),
			version(driver))
	case field != "" && field != s.Field:
		return refuse("it is of the field %s, not of %s", s.Field, field)
	}
	return nil
}

// Holds compares files with those that were certified: each of them, unchanged. Errors
// wrap ErrRefused.
func (c *Certificate) Holds(read func(name string) ([]byte, error)) error {
	for _, f := range c.Files {
		b, err := read(f.Name)
		if err != nil {
			return refuse("%w", err)
		}
		if got := FileOf(f.Name, b); got != f {
			return refuse("%s is not the file that was certified: its SHA-256 begins with %.12s, not %.12s", f.Name,
				got.Digest.SHA256, f.Digest.SHA256)
		}
	}
	return nil
}

// Key is an Ed25519 key of an issuer. A public one cannot sign.
type Key struct {
	Name    string
	Public  ed25519.PublicKey
	Expires time.Time
	private ed25519.PrivateKey
}

// ErrKey is wrapped by errors about texts that hold no key.
var ErrKey = errors.New("not a key of certificates")

// NewKey makes a key by the system's random numbers.
func NewKey(name string, expires time.Time) (*Key, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	return &Key{name, public, expires.UTC().Truncate(time.Second), private}, err
}

// ID returns the beginning of the SHA-256 of the public key.
func (k *Key) ID() string {
	sum := sha256.Sum256(k.Public)
	return hex.EncodeToString(sum[:8])
}

// publicWord begins the line of a public key.
const publicWord = "wattmark-key"

// PublicLine returns the public key as a line: the word, base64, expiry and name.
func (k *Key) PublicLine() string {
	return fmt.Sprintf("%s %s %s %s\n", publicWord, base64.StdEncoding.EncodeToString(k.Public),
		k.Expires.Format(time.RFC3339), k.Name)
}

// ParsePublic reads the line of PublicLine. Errors wrap ErrKey.
func ParsePublic(line string) (*Key, error) {
	words := strings.SplitN(strings.TrimSpace(line), " ", 4)
	if len(words) != 4 || words[0] != publicWord {
		return nil, fmt.Errorf("certificate: %w: want %s KEY EXPIRY NAME, as wattmark certificate key writes it", ErrKey,
			publicWord)
	}
	public, err := base64.StdEncoding.DecodeString(words[1])
	if err != nil || len(public) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("certificate: %w: %q is not the base64 of %d bytes", ErrKey, words[1],
			ed25519.PublicKeySize)
	}
	expires, err := time.Parse(time.RFC3339, words[2])
	if err != nil {
		return nil, fmt.Errorf("certificate: %w: expiry: %w", ErrKey, err)
	}
	return &Key{Name: words[3], Public: public, Expires: expires}, nil
}

// PEM returns the private key as PKCS #8, which openssl and cosign read.
func (k *Key) PEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(k.private)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), err
}

// Private joins the PEM of a private key to its public one. Errors wrap ErrKey.
func (k *Key) Private(text []byte) (*Key, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("certificate: %w: no PEM in it", ErrKey)
	}
	v, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	private, ok := v.(ed25519.PrivateKey)
	if err != nil || !ok || !k.Public.Equal(private.Public()) {
		return nil, fmt.Errorf("certificate: %w: no Ed25519 key that belongs to the public one of %s", ErrKey, k.Name)
	}
	full := *k
	full.private = private
	return &full, nil
}

// Describe sets the figures of the readings, the errors by the sensor's model and how to
// apply the profile. Sensor is set before; polls, two at least, are those that it was
// identified from, in order of time. Errors wrap sensor.ErrProfile.
func (c *Certificate) Describe(polls []sensor.Poll) error {
	x := &c.Conditions
	first, last := polls[0], polls[len(polls)-1]
	x.Readings, x.Duration, x.Coverage = len(polls), last.At-first.At, 2
	x.SamplingRate = measure.Number(float64(len(polls)-1) / float64(x.Duration))
	x.Power.Peak, x.Energy = first.Power, 0
	for i, p := range polls {
		x.Power.Peak = max(x.Power.Peak, p.Power)
		if i > 0 {
			x.Energy += measure.Joule(float64(p.Power+polls[i-1].Power) / 2 * float64(p.At-polls[i-1].At))
		}
	}
	x.Power.Mean = measure.Watt(float64(x.Energy) / float64(x.Duration))
	c.Apply = apply(&c.Sensor)
	return c.model()
}

// The periods of the square waves for which the model gives an error, in s, and how long
// each is read.
var (
	periods = []measure.Seconds{0.01, 0.1, 1}
	read    = measure.Seconds(10)
)

// model adds the errors of the mean of the readings over 10 s of a square wave that lies half the time 50 % above and
// half below its mean, at a random phase: by the sensor's response and noise, beside its static error; twice the
// standard deviation. A profile that does not tell its model gives none.
func (c *Certificate) model() error {
	if c.Sensor.Undecided || c.Sensor.Weak {
		return nil
	}
	for _, p := range periods {
		w := sensor.Wanted{Kernel: p, U: 1, Swing: 1, Mean: c.Conditions.Power.Mean}
		plan, err := sensor.NewPlan(&c.Sensor, w)
		if err != nil {
			return err
		}
		plan.Segments, plan.PerSegment, plan.Trials = 1, int(math.Round(float64(read/p))), 2
		plan.Recount(&c.Sensor, w)
		u := measure.Number(200 * plan.OneTrial)
		c.Errors = append(c.Errors, Error{
			fmt.Sprintf("energy of %v of work that alternates ± 50 %% every %v", read, p), Modelled, 0, -u, u, p,
		})
	}
	return nil
}

// Against adds what a meter showed of the field's method in work, with the class of the
// work's load; a method without an energy adds nothing.
func (c *Certificate) Against(r *validate.Report, method string) {
	for i := range r.Methods {
		m := &r.Methods[i]
		if m.Name != method || math.IsNaN(float64(m.ErrorPct)) {
			continue
		}
		class := "alternates within the sensor's updates"
		switch {
		case r.Swing < 0.1:
			class = "is steady"
		case r.Alternation <= 0.5:
			class = "changes more slowly than the sensor's updates"
		}
		c.Errors = append(c.Errors, Error{
			fmt.Sprintf("energy of %v of work that %s: %s", r.Duration, class, r.Name), Metered, m.ErrorPct,
			m.Interval.Lo, m.Interval.Hi, 0,
		})
	}
}

// apply describes the use of a profile in sentences.
func apply(p *sensor.Profile) []string {
	out := []string{"power_w = (reading_w - offset_w) / gain; U of it combines gain_u and offset_u_w"}
	if !p.Calibrated {
		out[0] = "gain and offset are not known, since no meter was read beside: the readings keep their static error"
	}
	out = append(out, "a polled reading is of the power lag_s ago: shift readings by it before they are held "+
		"against kernels")
	switch {
	case p.Seen < 0.95:
		out = append(out, "the sensor sees share_seen of the time: repeat work at random phases (wattmark sensor plan)")
	case p.Model == sensor.FirstOrder:
		out = append(out, "power(t) = reading(t) + tau_s * d reading/dt (wattmark correct --certificate)")
	default:
		out = append(out, "a reading is the mean over window_s: leave out the first window_s of work, or undo it "+
			"(wattmark correct --certificate)")
	}
	return out
}

// Comparison is a figure of a certificate, found again.
type Comparison struct {
	Name      string         `json:"figure"`
	Certified measure.Number `json:"certified"`
	U         measure.Number `json:"u"`
	Found     measure.Number `json:"found"`
}

// Compare holds the figures against those of p, found from the same files. Errors wrap
// ErrRefused where one lies outside of the certified uncertainty.
func (c *Certificate) Compare(p *sensor.Profile) (list []Comparison, err error) {
	s := &c.Sensor
	add := func(name string, certified, u, found float64) {
		x := Comparison{name, measure.Number(certified), measure.Number(u), measure.Number(found)}
		list = append(list, x)
		// The same program finds the same figure, of which the tenth digit may differ.
		if !(math.Abs(found-certified) <= math.Max(u, 1e-9*math.Abs(certified))) && err == nil {
			err = refuse("%s is %.6g by the recordings, not %.6g ± %.2g", name, found, certified, u)
		}
	}
	add("period_s", float64(s.Period), float64(s.UPeriod), float64(p.Period))
	if p.Model != s.Model && !s.Undecided {
		return list, refuse("by the recordings the sensor is %s, not %s", p.Model, s.Model)
	}
	if p.Model == s.Model {
		add("window_s", float64(s.Window), float64(s.UWindow), float64(p.Window))
		add("tau_s", float64(s.Tau), float64(s.UTau), float64(p.Tau))
	}
	add("lag_s", float64(s.Lag), float64(s.ULag), float64(p.Lag))
	add("share_seen", s.Seen, s.USeen, p.Seen)
	if s.Calibrated || p.Calibrated {
		add("gain", s.Gain, s.UGain, p.Gain)
		add("offset_w", float64(s.Offset), float64(s.UOffset), float64(p.Offset))
	}
	return list, err
}
