package lab

import (
	"log/slog"
	"path/filepath"

	"github.com/kubenergy/kubenergy/internal/lab/kubelet"
)

// OurImages are the images of KubEnergy's own components.
func OurImages() []string {
	return []string{"kubenergy", "kubenergy-scheduler", "kubenergy-controller"}
}

// PodsDir is where pods that run as processes have their folders and, in logs/, what they print.
func (c *Cluster) PodsDir() string { return filepath.Join(c.dir, "pods") }

// kubelet returns what runs programs as pods.
func (c *Cluster) kubelet(programs kubelet.Programs) *kubelet.Options {
	return &kubelet.Options{
		Client: c.client, Config: c.Config(), Dir: c.PodsDir(), Programs: programs, Network: &c.network,
		Log: slog.New(slog.NewTextHandler(c.logs, nil)).With("part", "kubelet"),
	}
}
