// Package tektronix speaks to Tektronix oscilloscopes: MDO3000, MDO4000 and
// their MSO and DPO sisters, and the 4, 5 and 6 Series MSO.
package tektronix
