package slurm

import "testing"

func TestTres(t *testing.T) {
	for _, c := range []struct {
		list, name string
		want       int64
	}{
		{"cpu=4,mem=2G,node=1,billing=4,gres/gpu=1", "mem", 2 << 30},
		{"cpu=4,mem=2G,node=1,billing=4,gres/gpu=1", "gres/gpu", 1},
		{"mem=4000M,cpu=1", "mem", 4000 << 20},
		{"mem=1.50T", "mem", 3 << 39},
		{"mem=512K", "mem", 512 << 10},
		{"cpu=4", "mem", 0},
		{"mem=G", "mem", 0},
		{"mem=9999999P", "mem", 0},
		{"", "mem", 0},
	} {
		if got := tres(c.list, c.name); got != c.want {
			t.Errorf("tres(%q, %q) = %d, want %d", c.list, c.name, got, c.want)
		}
	}
}
