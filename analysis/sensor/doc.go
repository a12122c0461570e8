// Package sensor finds out what a GPU's built-in power sensor does, from its
// readings and a load that is known from elsewhere: how often its register is
// renewed, over which stretch of time a value is a mean or how slowly it follows,
// how late it comes, its static gain and offset, and its resolution.
//
// The method is that of "Part-time Power Measurements: nvidia-smi's Lack of
// Attention" (arXiv 2312.02741): readings are collapsed to the changes of the
// register, and a boxcar of a window and a delay over the load is fitted to them.
// Beside it stands the first-order lag of Burtscher, Zecena and Zong ("Measuring
// GPU Power with the K20 Built-in Sensor"), and the evidence chooses.
//
// The package is pure: it reads no file and no device.
package sensor
