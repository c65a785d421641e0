package gpu

// A Part is a MIG instance of a board, or all of a board that has none.
type Part struct {
	Instance string  `json:"instance,omitempty"` // GPU instance, and its compute instance, as 1/0; "": all of the board
	SMs      float64 `json:"sms"`                // its share of the board's multiprocessors
	Busy     float64 `json:"busy"`               // share of the time since the reading before in which something ran
	// Reported says that SM of the uses is known. Otherwise a part's only consumer is charged with all of it, and where
	// there are several, it is unknown who used it.
	Reported bool  `json:"told,omitempty"`
	Uses     []Use `json:"uses,omitempty"`
}

// A Use is a process on a part, or a container that a page names.
type Use struct {
	PID       int     `json:"pid,omitempty"`
	Namespace string  `json:"-"`
	Pod       string  `json:"-"`
	PodUID    string  `json:"-"`
	Container string  `json:"-"`
	SM        float64 `json:"sm,omitempty"`     // share of the part's multiprocessor time since the reading before
	Memory    uint64  `json:"memory,omitempty"` // bytes of the board's
}

// shares returns who holds a part, and how much of its time each used.
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
