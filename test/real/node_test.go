//go:build linux

package real

import (
	"path/filepath"
	"testing"

	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/node"
)

const nodeName = "real"

// image holds the burner and nothing else. It is also what holds a pod's namespaces.
const image = "localhost/kubenergy/burner:real"

// startNode runs containerd and a kubelet, and returns when the node is ready.
func (w *world) startNode(t *testing.T) {
	t.Helper()
	archived := filepath.Join(w.dir, "burner.tar")
	kit.WriteImage(t, image, w.burner, archived)
	n := node.Node{
		Name: nodeName, Dir: w.dir, Group: w.group, Kubelet: w.kubelet, Kubeconfig: w.kubeconfig,
		Sandbox: image, Images: []string{archived},
	}
	n.AwaitReady(t, w.client, n.Start(t))
}
