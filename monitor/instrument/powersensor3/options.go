package powersensor3

import (
	"fmt"
	"time"
)

// Options are the settings of the driver in a bench file.
type Options struct {
	// Silence is how long the stream may fall silent before the device counts as
	// lost; default 5 s.
	Silence time.Duration `yaml:"silence"`
	// PairNames takes the rails' names from the device's memory; default true.
	// False names them pair0 to pair3.
	PairNames bool `yaml:"pair_names"`
}

// Defaults are the options of a device that is not described further.
func Defaults() Options { return Options{Silence: 5 * time.Second, PairNames: true} }

// Validate reports an option that cannot be used.
func (o Options) Validate() error {
	if o.Silence < 100*time.Millisecond || o.Silence > time.Hour {
		return fmt.Errorf("silence %v: want 100ms to 1h", o.Silence)
	}
	return nil
}
