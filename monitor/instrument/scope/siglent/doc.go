// Package siglent speaks to Siglent oscilloscopes with the E11 command set:
// SDS2000X Plus, SDS5000X, SDS6000A and the HD series.
package siglent
