package lab

import (
	"log/slog"
	"path/filepath"

	"github.com/kubenergy/kubenergy/internal/lab/kubelet"
)

// OurImages returns the image names of KubEnergy's own components.
func OurImages() []string {
	return []string{"kubenergy", "kubenergy-scheduler", "kubenergy-controller"}
}

// PodsDir returns the directory of the pods that run as processes. Their output is in its subdirectory logs.
func (c *Cluster) PodsDir() string { return filepath.Join(c.dir, "pods") }

// kubelet returns the options for running the programs as pods.
func (c *Cluster) kubelet(programs kubelet.Programs) *kubelet.Options {
	return &kubelet.Options{
		Client: c.client, Config: c.Config(), Dir: c.PodsDir(), Programs: programs, Network: &c.network,
		Log: slog.New(slog.NewTextHandler(c.logs, nil)).With("part", "kubelet"),
	}
}
