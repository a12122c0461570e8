package scope

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/scpi"
)

// State is the state of a scope's trigger.
type State uint8

// The states.
const (
	Stopped  State = iota + 1 // memory stands and can be read
	Waiting                   // armed for a single acquisition, not triggered yet
	Sampling                  // a single acquisition is triggered and fills memory
	Free                      // it runs by itself, acquisition after acquisition
)

// String words a state for error messages.
func (s State) String() string {
	return [...]string{"unknown", "stopped", "waiting", "sampling", "free-running"}[min(s, Free)]
}

// Link is a connection to a scope, with the first error.
type Link = scpi.Link

// Dialect speaks the commands of one family of scopes. A Device makes one for
// itself, calls it on one goroutine, and hands in the link. Methods send and
// ask, and leave their error in the link; they do not retry: the Device
// repeats the calls (all but Arm and Check) when the error is
// the connection's, scpi.ErrReply or ErrFewer, possibly over a new connection
// behind *CLS. Each of these must therefore send every setting that it rests
// on, and a Dialect keeps no state but that learned in ReadBack and from Arm and SetTriggered.
type Dialect interface {
	// SetUp sets the channels of the plan, with the others off, the window, the
	// depth, and a trigger on a rising edge, Plan.Edge, so that the memory starts at
	// its first point: one that no signal reaches, so that only Force starts it,
	// unless the bench file names one to wait for. The Device looks into the error queue behind
	// it. SetAll sends a list of settings and waits for each.
	SetUp(l *Link, p *Plan)
	// Check returns the scope's complaints since *CLS. It may find nothing where the scope has no way to report so:
	// ReadBack then has to look at every setting. Record asks the error queue.
	Check(l *Link)
	// ReadBack reads the scope's settings, and refuses, with an error that wraps scpi.ErrInstrument, differences
	// to SetUp beyond rounding.
	ReadBack(l *Link, p *Plan) Memory
	// Scale asks how the codes of a channel (1, 2, …) in deep memory are scaled. It
	// is asked after ReadBack and again behind a recording: both must be equal to
	// the last bit (but for Begin), else the recording is refused.
	Scale(l *Link, channel int) Scale
	// Arm begins one single acquisition.
	Arm(l *Link)
	// SetTriggered notes that no trigger has come since Arm, or that one has, forced or from outside.
	SetTriggered(on bool)
	// State asks for the state of the trigger. Before Force a scope that has armed is
	// Waiting; one that is Sampling then has triggered by itself.
	State(l *Link) State
	// Held asks how many points of a channel a stopped scope holds. exact is false
	// where it only reports the size of its memory, also after an early Stop: the
	// Device then keeps to the points that must have been taken by the host's clock.
	Held(l *Link, channel int) (points int, exact bool)
	// Read appends the codes of points first to first+n−1 (first counts from 0) to
	// dst, in the form of Memory.Codes, exactly n of them: n is at most Memory.Piece. What
	// is too few may be returned as it is: the Device counts. A block longer than
	// it can be is to be refused before it is read: bound QueryBlock.
	Read(l *Link, channel, first, n int, dst []byte) []byte
}

// Record is a Dialect's knowledge of the acquisition that was armed last; embed it.
type Record struct{ Triggered bool }

// Check implements Dialect for scopes that know SYST:ERR?.
func (*Record) Check(l *Link) { l.Check("set up") }

// SetTriggered implements Dialect.
func (r *Record) SetTriggered(on bool) { r.Triggered = on }

// Plan holds the settings to make: the options of the bench file on the model that
// answers.
type Plan struct {
	Options
	Model Model
	// Used are the numbers of the channels in use, ascending.
	Used []int
	// Points is the depth of one channel to set; 0 where the family does not set it.
	Points int
}

// Channels are the settings of all of the model's channels, as forms of package fmt with the
// arguments channel, probe's ratio, scale, offset, offset with its sign turned, and the ratio's
// inverse: off for a channel that is not in use, on for one that is.
func (p *Plan) Channels(off string, on ...string) (settings []string) {
	for n := 1; n <= p.Model.Channels; n++ {
		in, used := p.On(n)
		forms := on
		if !used {
			forms = []string{off}
		}
		for _, form := range forms {
			settings = append(settings, fmt.Sprintf(form, n, in.Ratio(), in.Scale, in.Offset, -in.Offset, 1/in.Ratio()))
		}
	}
	return settings
}

// Arming is a scope that fills the memory before its trigger, of which there is nothing here: it
// soon is ready. A Dialect resolves it by Settled.
const Arming State = 100

// Settled is a state as the Device knows it. So near to the trigger a scope that is Arming answers
// with the state before, or the next.
func (s State) Settled(triggered bool) State {
	switch {
	case s != Arming:
		return s
	case triggered:
		return Sampling
	}
	return Free
}

// On returns the input of a channel, and whether it is in use.
func (p *Plan) On(channel int) (Input, bool) {
	in, on := p.Inputs[ChannelName(channel)]
	return in, on
}

// Edge is where a rising edge is to trigger: at the one to wait for, else at a
// level in volts that the first channel cannot show, so many divisions (the screen
// ends at 4) above its middle.
func (p *Plan) Edge(above float64) (channel int, level float64) {
	if t := p.Trigger; t.external() {
		return int(t.Channel[len(t.Channel)-1] - '0'), t.level()
	}
	in, _ := p.On(p.Used[0])
	return p.Used[0], above*in.Scale - in.Offset
}

// Memory describes a scope's record of each channel.
type Memory struct {
	Points int     // of a channel, when it is full
	Step   float64 // seconds from one to the next
	Piece  int     // the most points that one Read may ask for
	Codes  Codes
}

// Scale is how codes become volts at the probe's tip: V = Gain·code + Zero.
type Scale struct {
	Gain, Zero float64 // V a code; volts of code 0
	Division   float64 // V a division, as read back
	Step       float64 // seconds a point, as this channel's preamble has it
	// Begin is when the first point in memory was taken, in seconds behind the
	// trigger, where the scope reports it; else 0. The Device leaves out the points
	// before the trigger. It counts behind a recording only.
	Begin float64
	// Least and Most are the codes that mean over range.
	Least, Most measure.Count
	// Quantum is how many codes a step of the converter is wide; 0 for one.
	Quantum float64
}

// ErrFewer: the scope gave less than it holds, as some do when they are asked
// too soon after a stop. The Device asks again, after a pause.
var ErrFewer = errors.New("the scope gave fewer points than it holds")

// ExpectOffsets asks each channel in use for its offset, by a form of package fmt with the channel, which counts
// with its sign turned: some scopes set a range's end in silence.
func (p *Plan) ExpectOffsets(l *Link, query string) {
	for _, n := range p.Used {
		in, _ := p.On(n)
		fine := l.Err == nil
		if l.Expect(fmt.Sprintf(query, n), -in.Offset, 0.02); fine && l.Err != nil {
			l.Err = fmt.Errorf("%w: it has less range at this scale", l.Err)
		}
	}
}

// Rate asks for the rate, and refuses one at which the plan's points do not span its window.
func (p *Plan) Rate(l *Link, query string) float64 {
	rate := l.Number(query)
	if !(rate > 0 && float64(p.Points)/rate >= p.Window.Seconds()*(1-1e-3)) {
		l.Fail("%w: %s at %v S/s do not span %v", scpi.ErrInstrument, measure.Plural(p.Points, "point"), rate, p.Window)
	}
	return rate
}

// ReadWhole is a Dialect's Read of a scope that knows no pieces: it reads all points of a channel, of so many
// bytes each, and takes out those wanted.
func ReadWhole(l *Link, query string, points, size, first, n int, dst []byte) []byte {
	out := l.Block(query, size*(points+points/8+1024), dst)
	got := out[len(dst):]
	if len(got) < size*(first+n) {
		l.Fail("%w: %d of %d", ErrFewer, len(got)/size, first+n)
		return dst
	}
	copy(got, got[size*first:size*(first+n)])
	return out[:len(dst)+size*n]
}

// Family holds the properties of a kind of scopes.
type Family struct {
	Kind string // in bench files
	Name string // as its owner calls it: Rigol DS1000Z
	Port int    // where its raw socket listens
	// Channels and Memory are those of its largest member; Memory is in points, over
	// all channels.
	Channels, Memory int
	// Usual is how many channels Defaults puts to use: those that all members have.
	Usual int
	// MaxWindow is the longest time that memory can span.
	MaxWindow time.Duration
	// Scale is the range of volts a division, and Offset the most volts of offset,
	// with a probe of 1:1. The scope itself may refuse more.
	MinScale, MaxScale, MaxOffset float64
	// Depths lists the depths of one channel, ascending, that can be set on a model
	// with so many channels in use; nil where the scope chooses by itself. Before a
	// model is met it is asked for one without a series, with the family's Memory:
	// all that any may have.
	Depths func(m Model, used int) []int
	// Whole is true where a stop in the middle of a recording leaves unknown contents: the
	// Device then waits until memory is full, and reads the points that are due.
	Whole bool
	// Force is the command that triggers an armed scope, sent once and never again, and Stop the one
	// that ends the acquisition: the Device then asks State until it is Stopped.
	Force, Stop string
	// Spec is its accuracy.
	Spec Spec
	// Dialect makes a speaker of its commands.
	Dialect func() Dialect
}

// Spec is the accuracy that the maker states, as limits. A limit with nothing
// known inside of it has a standard uncertainty of limit/√3 (GUM, 4.3.7).
type Spec struct {
	Gain       float64 // relative; stated of full scale, taken of the value
	ZeroDiv    float64 // of the zero, in divisions
	ZeroVolt   float64 // … and in volts, with a probe of 1:1
	OffsetPart float64 // … and as a part of the offset that is set
	Clock      float64 // relative
	NoiseCodes float64 // standard deviation of one reading, in steps of the converter
}

// readable is the default number of points to read, over all channels.
// At the 1.7 MB/s of the slowest that is 7 s.
const readable = 12_000_000

// depths are the depths that can be set when so many channels are in use.
func (f *Family) depths(m Model, used int) []int {
	if f.Depths == nil {
		return nil
	}
	return f.Depths(m, used)
}

// depth is the depth to set: the one that is wanted, else the largest that is
// read in reasonable time; 0 where the scope chooses.
func (f *Family) depth(o *Options, m Model) (best int) {
	if o.Depth != 0 {
		return o.Depth
	}
	for _, d := range f.depths(m, len(o.Inputs)) {
		if best == 0 || d*len(o.Inputs) <= readable {
			best = d
		}
	}
	return best
}

// Defaults are a 12 V rail on every two of the usual channels, with a clamp of
// 10 mV/A on the odd one and a probe on the even one, and 6 s of memory.
func (f *Family) Defaults() Options {
	in := map[string]Input{}
	for n := 1; n < f.Usual; n += 2 {
		in[ChannelName(n)] = Input{Scale: 0.05, Offset: -0.1, AmperePerVolt: 100}
		in[ChannelName(n+1)] = Input{Scale: 0.5, Offset: -12}
	}
	return Options{Window: 6 * time.Second, Timeout: 5 * time.Second, Inputs: in, family: f}
}

// channel makes a channel of the scope's scale.
func (s Spec) channel(name string, in Input, p Scale) measure.Channel {
	k, unit := 1.0, measure.UnitVolt
	if in.AmperePerVolt != 0 {
		k, unit = in.AmperePerVolt, measure.UnitAmpere
	}
	root3 := math.Sqrt(3)
	zero := s.ZeroDiv*p.Division + s.ZeroVolt*in.Ratio() + s.OffsetPart*math.Abs(in.Offset)
	return measure.Channel{
		Name: name, Unit: unit, Gain: p.Gain * k, Offset: p.Zero * k, UGain: s.Gain / root3, UOffset: math.Abs(k) * zero / root3,
		Noise: math.Abs(p.Gain*k) * s.NoiseCodes * max(1, p.Quantum), MinCount: p.Least, MaxCount: p.Most,
	}
}

// Width has the keyword of several makers for codes by their number of bytes.
var Width = map[int]string{1: "BYTE", 2: "WORD"}

// Prefixes are how makers shorten numbers, the largest first.
var Prefixes = []struct {
	Name  string
	Value float64
}{{"G", 1e9}, {"M", 1e6}, {"k", 1e3}}

// ShowPoints writes a number of points as scopes take it: 10M, 625k.
func ShowPoints(n int) string {
	for _, u := range Prefixes {
		if v := float64(n) / u.Value; v >= 1 {
			return strconv.FormatFloat(v, 'g', -1, 64) + u.Name
		}
	}
	return strconv.Itoa(n)
}

// Step125 rounds up to 1, 2 or 5 times a power of ten, as scopes' scales are.
func Step125(v float64) float64 { return Step(v, 1, 2, 5) }

// Step rounds up to the next of some steps of a decade.
func Step(v float64, steps ...float64) float64 {
	decade := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range steps {
		if v <= m*decade*(1+1e-9) {
			return m * decade
		}
	}
	return 10 * decade
}

// TimeScale is the next time per division, in steps of 1, 2 and 5, at which so many span the window.
func (p *Plan) TimeScale(divisions float64) float64 { return Step125(p.Window.Seconds() / divisions) }

// ChannelName is how a channel is called in bench files.
func ChannelName(n int) string { return fmt.Sprintf("ch%d", n) }

// Model is a row of the table: a run of models of one family.
type Model struct {
	Kind     string // of the driver that speaks with it
	Maker    string // which the maker's field of *IDN? holds, in capitals
	pattern  string // matches the model's name in *IDN? from its beginning; compiled when a scope is identified
	Channels int
	Memory   int    // points over all channels
	Series   string // within the family, where that matters to its Dialect
}

// models is the table of all scopes that are known, each family in one place.
// The first row that fits counts.
var models = []Model{
	{"rigol-ds1000z", "RIGOL", `(DS|MSO)1\d\d4Z`, 4, 12_000_000, ""},

	{"rigol-mso5000", "RIGOL", `MSO5\d\d2`, 2, 100_000_000, ""},
	{"rigol-mso5000", "RIGOL", `MSO5\d\d4`, 4, 100_000_000, ""},

	{"rigol-dho", "RIGOL", `DHO[89]\d2`, 2, 50_000_000, ""},
	{"rigol-dho", "RIGOL", `DHO[89]\d4`, 4, 50_000_000, ""},

	{"siglent-e11", "SIGLENT", `SDS2\d\d4X[ -]?(PLUS|HD)`, 4, 400_000_000, "SDS2000X"},
	{"siglent-e11", "SIGLENT", `SDS2\d\d2X[ -]?(PLUS|HD)`, 2, 200_000_000, "SDS2000X"},
	{"siglent-e11", "SIGLENT", `SDS(3\d\d4X[ -]?HD|7\d\d4A)`, 4, 400_000_000, "SDS3000X"},
	{"siglent-e11", "SIGLENT", `SDS5\d\d4X`, 4, 500_000_000, "SDS5000X"},
	{"siglent-e11", "SIGLENT", `SDS5\d\d2X`, 2, 250_000_000, "SDS5000X"},
	{"siglent-e11", "SIGLENT", `SDS6\d\d4( ?A| ?L| ?H1[02]| ?PRO|$)`, 4, 500_000_000, "SDS6000A"},
	{"siglent-e11", "SIGLENT", `SDS(8|1[012])\d4X[ -]?HD`, 4, 100_000_000, "SDS1000X"},
	{"siglent-e11", "SIGLENT", `SDS(8|1[012])\d2X[ -]?HD`, 2, 100_000_000, "SDS1000X"},

	{"rohde-schwarz-rtb2000", "ROHDE", `RTB2002$`, 2, 20_000_000, ""},
	{"rohde-schwarz-rtb2000", "ROHDE", `RTB2004$`, 4, 40_000_000, ""},

	{"tektronix", "TEKTRONIX", `MSO44B?$`, 4, 125_000_000, "4/5/6"},
	{"tektronix", "TEKTRONIX", `MSO46B?$`, 6, 187_500_000, "4/5/6"},
	{"tektronix", "TEKTRONIX", `MSO[56]4B?$`, 4, 250_000_000, "4/5/6"},
	{"tektronix", "TEKTRONIX", `MSO[56]6B?$`, 6, 375_000_000, "4/5/6"},
	{"tektronix", "TEKTRONIX", `MSO[56]8(LP|B)?$`, 8, 500_000_000, "4/5/6"},
	{"tektronix", "TEKTRONIX", `(MSO|DPO)3\d\d4$`, 4, 20_000_000, ""},
	{"tektronix", "TEKTRONIX", `(MSO|DPO)3\d\d2$`, 2, 10_000_000, ""},
	{"tektronix", "TEKTRONIX", `MDO3\d\d4$`, 4, 40_000_000, ""},
	{"tektronix", "TEKTRONIX", `MDO3\d\d2$`, 2, 20_000_000, ""},
	{"tektronix", "TEKTRONIX", `(MSO|DPO|MDO)4\d\d4-?\d?[BC]?$`, 4, 80_000_000, ""},
	{"tektronix", "TEKTRONIX", `(MSO|DPO|MDO)4\d\d2-?\d?[BC]?$`, 2, 40_000_000, ""},

	{"keysight-infiniivision", "KEYSIGHT", `(DSO|MSO|EDU)-?X ?[1-46]\d\d2`, 2, 8_000_000, ""},
	{"keysight-infiniivision", "KEYSIGHT", `(DSO|MSO|EDU)-?X ?[1-46]\d\d4`, 4, 8_000_000, ""},
	{"keysight-infiniivision", "AGILENT", `(DSO|MSO)-?X ?[1-46]\d\d2`, 2, 8_000_000, ""},
	{"keysight-infiniivision", "AGILENT", `(DSO|MSO)-?X ?[1-46]\d\d4`, 4, 8_000_000, ""},
}

// Identify finds the row of an identity.
func Identify(id scpi.Identity) (Model, bool) {
	maker, name := strings.ToUpper(id.Maker), strings.ToUpper(strings.TrimSpace(id.Model))
	for _, m := range models {
		if strings.Contains(maker, m.Maker) && regexp.MustCompile("^"+m.pattern).MatchString(name) {
			return m, true
		}
	}
	return Model{}, false
}

// Accept refuses scopes that are not of the family: others scale their points otherwise.
// Its error wraps instrument.ErrIdentity.
func (f *Family) Accept(id scpi.Identity) error {
	m, known := Identify(id)
	switch {
	case !known:
		return fmt.Errorf("%w: it is a %s %s, wanted a %s; this program knows no driver for it", instrument.ErrIdentity,
			id.Maker, id.Model, f.Name)
	case m.Kind != f.Kind:
		return fmt.Errorf("%w: it is a %s %s, wanted a %s: use kind %s", instrument.ErrIdentity, id.Maker, id.Model,
			f.Name, m.Kind)
	}
	return nil
}
