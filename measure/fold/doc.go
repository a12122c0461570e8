// Package fold finds the energy of kernels far shorter than what a meter can
// bracket, from many launches of them at known times:
//
//   - Contrast: what a steady carrier draws with the kernel between its slices,
//     less what it draws without (Cheng et al., Eq. 2);
//   - Folder: the scans of thousands of launches laid over each other by their
//     time since the launch, a power profile finer than the meter's scans.
package fold
