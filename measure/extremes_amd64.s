#include "textflag.h"

// REDUCE leaves in the lowest part of X what OP makes of the eight parts of Y.
#define REDUCE(OP, OPS, Y, X) \
	VEXTRACTF128 $1, Y, X8; \
	OP X8, X, X; \
	VPERMILPD $1, X, X8; \
	OP X8, X, X; \
	VMOVSHDUP X, X8; \
	OPS X8, X, X

// func swingFMA(s *swing, x, y *Count, n, runs int, total *float32, d *distance)
//
// Eight scans at a time: p = (ix·x + iy·y)·(v + vy·y) + vi·y, of counts less x0 and y0,
// added to total; least, greatest and sum of p join those of a run's d.
TEXT ·swingFMA(SB), NOSPLIT, $0-56
	MOVQ s+0(FP), AX
	MOVQ x+8(FP), SI
	MOVQ y+16(FP), DI
	MOVQ n+24(FP), BX
	MOVQ runs+32(FP), R9
	MOVQ total+40(FP), DX
	MOVQ d+48(FP), R8
	VBROADCASTSS 0(AX), Y0   // ix
	VBROADCASTSS 4(AX), Y1   // iy
	VBROADCASTSS 8(AX), Y2   // v
	VBROADCASTSS 12(AX), Y3  // vy
	VBROADCASTSS 16(AX), Y4  // vi
	VPBROADCASTD 20(AX), Y12 // x0
	VPBROADCASTD 24(AX), Y13 // y0
run:
	VBROADCASTSS 0(R8), Y5
	VBROADCASTSS 4(R8), Y6
	VXORPS Y7, Y7, Y7
	LEAQ (SI)(BX*4), SI
	LEAQ (DI)(BX*4), DI
	LEAQ (DX)(BX*4), DX
	MOVQ BX, CX
	NEGQ CX
eight:
	VMOVDQU (SI)(CX*4), Y8
	VMOVDQU (DI)(CX*4), Y9
	VPSUBD Y12, Y8, Y8
	VPSUBD Y13, Y9, Y9
	VCVTDQ2PS Y8, Y8
	VCVTDQ2PS Y9, Y9
	VMULPS Y1, Y9, Y10
	VFMADD231PS Y0, Y8, Y10  // ix·x + iy·y
	VMOVAPS Y2, Y11
	VFMADD231PS Y3, Y9, Y11  // v + vy·y
	VMULPS Y11, Y10, Y10
	VFMADD231PS Y4, Y9, Y10
	VADDPS (DX)(CX*4), Y10, Y11
	VMOVUPS Y11, (DX)(CX*4)
	VMINPS Y10, Y5, Y5
	VMAXPS Y10, Y6, Y6
	VADDPS Y10, Y7, Y7
	ADDQ $8, CX
	JNZ eight
	REDUCE(VMINPS, VMINSS, Y5, X5)
	VMOVSS X5, 0(R8)
	REDUCE(VMAXPS, VMAXSS, Y6, X6)
	VMOVSS X6, 4(R8)
	REDUCE(VADDPS, VADDSS, Y7, X7)
	VADDSS 8(R8), X7, X7
	VMOVSS X7, 8(R8)
	ADDQ $12, R8
	DECQ R9
	JNZ run
	VZEROUPPER
	RET

// func boundsAVX(total *float32, n int, d *distance)
TEXT ·boundsAVX(SB), NOSPLIT, $0-24
	MOVQ total+0(FP), DX
	MOVQ n+8(FP), CX
	MOVQ d+16(FP), R8
	VBROADCASTSS 0(R8), Y5
	VBROADCASTSS 4(R8), Y6
eight:
	VMOVUPS (DX), Y8
	VMINPS Y8, Y5, Y5
	VMAXPS Y8, Y6, Y6
	ADDQ $32, DX
	SUBQ $8, CX
	JNZ eight
	REDUCE(VMINPS, VMINSS, Y5, X5)
	VMOVSS X5, 0(R8)
	REDUCE(VMAXPS, VMAXSS, Y6, X6)
	VMOVSS X6, 4(R8)
	VZEROUPPER
	RET
