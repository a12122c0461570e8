package simgrid

// Fig3 is the platform of the paper's Fig. 3: vectorAdd with 1024 threads a block
// on a Tesla M2075, which has 14 multiprocessors.
func Fig3() *Platform {
	return &Platform{Zone: "AS0", Host: "GPU", Speed: 3413, Idle: 29.4, Busy: 153.65, Off: 10}
}

// Fig3Flops is the work of one of its rounds: 14 blocks of 1024 threads with a
// flop each. The paper does not print it; it gives T_r = 4.20041 s.
const Fig3Flops = 14 * 1024
