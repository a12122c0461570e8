package marker

import (
	"math"

	"wattmark/measure"
)

// settleChips is how long after the marker the sidelobes are watched.
const settleChips = 4

// lags follows the correlations with start and stop from lag to lag, and hands
// on those that stand out: local maxima above a threshold, once the lags around
// them are known and lower.
type lags struct {
	chip  int   // lags a chip
	code  int   // chips of the code
	near  int64 // lags on either side of a peak that are the peak itself
	wait  int64 // lags from a peak to its judgement
	kinds int   // that can be told apart
	least float64
	pslr  measure.Decibel
	rho   [2]ring[float64]
	peaks [2]peak // the best candidate under way, by kind
	judge func(Kind, peak)
}

// peak is a local maximum of the correlation.
type peak struct {
	lag   int64   // the lag at which the code begins
	at    float64 // the same, placed between lags
	rho   float64
	pslr  measure.Decibel
	alive bool
}

// newLags returns lags of which a chip has the given number. chips is the
// number of chips whose correlation counts; blur is the instrument's memory, in
// chips, that widens peaks.
func newLags(spec Spec, perChip, chips int, blur float64, judge func(Kind, peak)) *lags {
	l := &lags{
		chip: perChip, code: spec.CodeLen(), judge: judge,
		near: int64((1.25 + min(blur, float64(spec.CodeLen())/2)) * float64(perChip)),
		wait: int64((2*spec.TagBits + spec.Guard + settleChips) * perChip),
		// A candidate has no tag and only half of the guards yet: let more through,
		// the fit judges.
		least: leastRho(chips) - 0.2,
		kinds: len(lags{}.peaks),
		pslr:  leastPSLR(spec.Code, blur),
	}
	if spec.ambiguous() {
		l.kinds = 1
	}
	for k := range l.rho {
		l.rho[k] = newRing[float64]((spec.Len()+spec.CodeLen()+settleChips+2)*perChip + 2)
	}
	return l
}

// leastPSLR is the smallest peak-to-sidelobe ratio of a marker. The code alone
// has 17.8 dB (m-sequence 31); noise as strong as the step and the work beside
// the guards leave 4 to 8. The up-down pattern is its own sidelobe, and a memory
// of many chips (blur) blends a peak into its sidelobes; there the correlation
// itself must be the higher, see updates.leastRho.
func leastPSLR(c Code, blur float64) measure.Decibel {
	if c == UpDown {
		return 0.5
	}
	return measure.Decibel(2.5 / (1 + blur/4))
}

// leastRho is the correlation, over n chips, that noise exceeds once in 10¹²
// trials: Fisher's z is 7.2 standard deviations then.
func leastRho(n int) float64 {
	return max(0.75, math.Tanh(7.2/math.Sqrt(float64(max(n-3, 1)))))
}

// push takes the correlations of the next lag.
func (l *lags) push(start, stop float64) {
	l.rho[0].push(start)
	l.rho[1].push(stop)
	newest := l.newest()
	at := newest - int64(l.chip)
	for k := range l.kinds {
		p := &l.peaks[k]
		if rho := l.at(k, at); rho >= l.least && l.isPeak(k, at) && (!p.alive || rho > p.rho) {
			*p = peak{lag: at, rho: rho, alive: true}
		}
		if p.alive && newest-p.lag >= l.wait {
			l.close(k)
		}
	}
}

// finish judges what waits for sidelobes that will not come.
func (l *lags) finish() {
	order := [2]int{0, 1}
	if l.peaks[1].lag < l.peaks[0].lag {
		order = [2]int{1, 0}
	}
	for _, k := range order {
		if l.peaks[k].alive {
			l.close(k)
		}
	}
}

func (l *lags) restart() {
	for k := range l.rho {
		l.rho[k].clear()
		l.peaks[k].alive = false
	}
}

// close hands a peak on where its sidelobes are low enough.
func (l *lags) close(k int) {
	p := l.peaks[k]
	l.peaks[k].alive = false
	if p.pslr = l.sidelobes(k, p.lag); p.pslr < l.pslr {
		return
	}
	// The parabola through the neighbours places the peak between the lags.
	a, b, c := l.at(k, p.lag-1), l.at(k, p.lag), l.at(k, p.lag+1)
	p.at = float64(p.lag)
	if bend := a - 2*b + c; bend < 0 {
		p.at += max(-0.5, min(0.5, (a-c)/(2*bend)))
	}
	l.judge(Kind(k+1), p)
}

// newest returns the newest lag.
func (l *lags) newest() int64 { return l.rho[0].n - 1 }

// at returns the correlation at a lag; 0 where there is none.
func (l *lags) at(k int, lag int64) float64 {
	if r := &l.rho[k]; lag >= r.first() && lag < r.n {
		return *r.at(lag)
	}
	return 0
}

// isPeak reports whether no lag within a chip beats this one.
func (l *lags) isPeak(k int, lag int64) bool {
	rho := l.at(k, lag)
	for d := int64(1); d <= int64(l.chip); d++ {
		if l.at(k, lag-d) >= rho || l.at(k, lag+d) > rho {
			return false
		}
	}
	return true
}

// sidelobes compares a peak with the highest correlation, of either kind, that
// lies beside the peak and less than a code away.
func (l *lags) sidelobes(k int, lag int64) measure.Decibel {
	far := int64(l.chip * l.code)
	worst := 1e-3
	for i := lag - far; i <= min(lag+far, l.newest()); i++ {
		if i >= lag-l.near && i <= lag+l.near {
			continue
		}
		for k := range l.kinds {
			worst = max(worst, l.at(k, i))
		}
	}
	return measure.Decibel(20 * math.Log10(l.at(k, lag)/worst))
}
