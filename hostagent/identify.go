package hostagent

// Identify names a GPU by what its two libraries say. Its sensor's knows the
// driver's own version, which the CUDA driver API does not tell.
func Identify(gpu Info, sensor any) Info {
	s, ok := sensor.(interface{ Info() Info })
	if ok && s.Info().Driver != "" && s.Info().Driver != gpu.Driver {
		gpu.Driver = s.Info().Driver + " (" + gpu.Driver + ")"
	}
	return gpu
}
