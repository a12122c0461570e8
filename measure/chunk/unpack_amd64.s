#include "textflag.h"

// Eight values of up to eight bits are in one word: values 0, 1, 4 and 5 are shifted
// to the bottom of four quarters, 2, 3, 6 and 7 to those of four others, and one
// shuffle puts them in order.
DATA firsts<>+0(SB)/8, $0
DATA firsts<>+8(SB)/8, $1
DATA firsts<>+16(SB)/8, $4
DATA firsts<>+24(SB)/8, $5
GLOBL firsts<>(SB), RODATA|NOPTR, $32

// func unpackAVX2(dst *[BlockScans]int32, src *byte, base int32, width uint)
TEXT ·unpackAVX2(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVL base+16(FP), AX
	VMOVQ AX, X4
	VPBROADCASTD X4, Y4
	MOVQ width+24(FP), BX
	VPBROADCASTQ width+24(FP), Y0
	VPMULUDQ firsts<>(SB), Y0, Y1 // shifts of 0, 1, 4, 5
	VPADDQ Y0, Y1, Y2
	VPADDQ Y0, Y2, Y2             // of 2, 3, 6, 7
	MOVQ $1, AX
	MOVQ BX, CX
	SHLQ CX, AX
	DECQ AX
	VMOVQ AX, X3
	VPBROADCASTD X3, Y3           // mask
	MOVQ $32, CX
eight:
	VPBROADCASTQ (SI), Y5
	VPSRLVQ Y1, Y5, Y6
	VPSRLVQ Y2, Y5, Y7
	VSHUFPS $0x88, Y7, Y6, Y6
	VPAND Y3, Y6, Y6
	VPADDD Y4, Y6, Y6
	VMOVDQU Y6, (DI)
	ADDQ BX, SI
	ADDQ $32, DI
	DECQ CX
	JNZ eight
	VZEROUPPER
	RET
