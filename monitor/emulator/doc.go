// Package emulator is a bench in software, so that everything above the wire
// can be tried, tested and shown without a riser card.
//
//	board.Board      a GPU's supply: loads over time, slew, drift, rails; knows its exact energy
//	   │ power at an instant
//	   ├─ meter.Sampler   an ADC in virtual time: measure.Blocks, with drawn imperfections
//	   ├─ meter.Slow      a slow sensor in the manner of NVML
//	   ├─ ps3face         PowerSensor3's bytes  ┐
//	   ├─ poweneticsface  Powenetics v2's bytes │
//	   ├─ textface        a home-made board's   │
//	   ├─ niface          NI's gRPC server's    │
//	   ├─ labjackface     a LabJack T7's, T8's  │
//	   ├─ dataqface       a DATAQ DI-1100's, …  │
//	   ├─ pmd2face        PMD2's bytes          │
//	   ├─ pmdface         PMD-USB's bytes       ┼─▶ fault.Line ─▶ pty.Port or a TCP connection
//	   ├─ u2300face       a U2300A's SCPI       │
//	   ├─ wt300face       a WT300's commands    │
//	   ├─ rigolface       Rigol scopes' SCPI    │
//	   ├─ keysightface    Keysight scopes' SCPI │
//	   ├─ siglentface     Siglent scopes' SCPI  │
//	   └─ tekface         Tektronix scopes'     ┘
//	        scopeface     what all scopes share: probes, trigger, memory
//	        scpiface      what all SCPI instruments share
//
// The model (state advanced by time) is kept apart from the protocol faces
// (bytes). pace maps the board's time to a wall clock, or lets it run as fast
// as the reader takes the data.
package emulator
