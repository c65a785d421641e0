//go:build linux

package real

import (
	"path/filepath"
	"testing"

	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/node"
)

const nodeName = "real"

// image contains only the burner. It is also used as the image of pause containers.
const image = "localhost/kubenergy/burner:real"

// startNode runs containerd and a kubelet and waits until the node is ready.
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
