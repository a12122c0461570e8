// Package predict tells the time and energy of a kernel from its number of
// blocks alone, after Boughzala, Lefèvre and Orgerie, "Predicting the energy
// consumption of CUDA kernels using SimGrid" (SBAC-PAD 2020). Equations are
// numbered as there:
//
//	T(NB) = a·NB + b                          (1)
//	E(NB) = E_b·NB + P_s·T(NB)                (3)
//	T(NB) = T_r·⌈NB/nbSM⌉,  T_r = a·nbSM      (4, 5)
//	E(NB) = E_r·⌈NB/nbSM⌉,  E_r = E_b·nbSM + P_s·T_r  (6, 7)
//
// a, b and E_b come from a few measured points; P_s is the power of the idle
// GPU. E_b is the slope of a line through the dynamic energies Σ(P − P_s)·Δt.
//
// Beyond the paper: bands of confidence and of prediction, points of known
// uncertainty, and several resident blocks a multiprocessor (Resident).
//
// The package is pure: it reads no file and no database.
package predict

import "errors"

// The kinds of error, for errors.Is.
var (
	// ErrPoints: the points cannot be fitted.
	ErrPoints = errors.New("unusable calibration points")
	// ErrInput: a number that cannot be, such as zero blocks.
	ErrInput = errors.New("not to be predicted")
)
