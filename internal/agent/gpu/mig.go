package gpu

// Part is a MIG instance of a GPU, or the whole GPU if MIG is disabled.
type Part struct {
	Instance string  `json:"instance,omitempty"` // GPU instance and compute instance, e.g. 1/0; "" for the whole GPU
	SMs      float64 `json:"sms"`                // fraction of the GPU's multiprocessors
	Busy     float64 `json:"busy"`               // busy fraction of the time since the previous reading
	// Reported is true if SM of the uses is known. Otherwise, all usage of the part is attributed to its only
	// consumer, or to no consumer if there are several.
	Reported bool  `json:"told,omitempty"`
	Uses     []Use `json:"uses,omitempty"`
}

// Use is a process that uses a part, or a container listed by DCGM exporter.
type Use struct {
	PID       int     `json:"pid,omitempty"`
	Namespace string  `json:"-"`
	Pod       string  `json:"-"`
	PodUID    string  `json:"-"`
	Container string  `json:"-"`
	SM        float64 `json:"sm,omitempty"`     // fraction of the part's multiprocessor time since the previous reading
	Memory    uint64  `json:"memory,omitempty"` // GPU memory, in bytes
}

// shares returns the fraction of the part's time that each of its consumers used.
func (p *Part) shares(who func(*Use) string) map[string]float64 {
	shares, unknown := map[string]float64{}, false
	for i := range p.Uses {
		if id := who(&p.Uses[i]); id != "" {
			shares[id] += p.Uses[i].SM
		} else {
			unknown = true
		}
	}
	for id := range shares {
		switch {
		case p.Reported:
		case len(shares) == 1 && !unknown:
			shares[id] = p.Busy
		default:
			shares[id] = 0
		}
	}
	return shares
}
