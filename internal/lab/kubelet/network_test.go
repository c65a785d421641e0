package kubelet

import "testing"

// Each pod has an address that is mapped to its ports until it leaves.
func TestNetwork(t *testing.T) {
	var n Network
	a, b := n.join(ports{8443: 41}), n.join(ports{8443: 42, 9443: 43})
	n.leave(n.join(ports{8443: 44}))
	n.count = 0 // after an overflow, addresses in use are skipped
	c := n.join(ports{8443: 45})
	for to, want := range map[string]string{
		a + ":8443": "127.0.0.1:41", b + ":8443": "127.0.0.1:42", b + ":9443": "127.0.0.1:43", c + ":8443": "127.0.0.1:45",
		a + ":9443": a + ":9443", "10.127.0.4:8443": "10.127.0.4:8443", "127.0.0.1:8443": "127.0.0.1:8443",
		"node.example:10250": "node.example:10250", "nonsense": "nonsense", "": "",
	} {
		if got := n.resolve(to); got != want {
			t.Errorf("resolve(%q) = %q, want %q", to, got, want)
		}
	}
}
