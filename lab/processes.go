package lab

import (
	"log/slog"
	"path/filepath"

	"github.com/kubenergy/kubenergy/lab/kubelet"
)

// Processes says which pods run as processes of this machine instead of being simulated. What that means for a pod is
// said in package kubelet.
type Processes struct {
	// Dir is the folder of the programs.
	Dir string
	// Images are the last elements of image names, whatever their registry, repository and tag; each is the name of a
	// program in Dir.
	Images []string
}

// OurImages are the images of KubEnergy's own components.
func OurImages() []string {
	return []string{"kubenergy", "kubenergy-scheduler", "kubenergy-controller"}
}

// PodsDir is where pods that run as processes have their folders and, in logs/, what they print.
func (c *Cluster) PodsDir() string { return filepath.Join(c.dir, "pods") }

// options returns nil where no pod runs as a process.
func (p *Processes) options(c *Cluster) *kubelet.Options {
	if p == nil || len(p.Images) == 0 {
		return nil
	}
	return &kubelet.Options{
		Client: c.client, Config: c.Config(), Dir: c.PodsDir(), Binaries: p.Dir, Images: p.Images,
		Log: slog.New(slog.NewTextHandler(c.logs, nil)).With("part", "kubelet"),
	}
}
