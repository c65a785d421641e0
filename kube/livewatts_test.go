package kube

import (
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/energy"
)

func TestLiveWatts(t *testing.T) {
	node := func(watts, updated string) *v1.Node {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			"energy.thesis.io/current-watts": watts, "energy.thesis.io/last-updated": updated,
		}}}
	}
	at := func(age time.Duration) string {
		return strconv.FormatInt(noon.Add(-age).Unix(), 10)
	}
	for _, tc := range []struct {
		name string
		node *v1.Node
		want energy.Watts
		ok   bool
	}{
		{"none", &v1.Node{}, 0, false},
		{"fresh", node("63.5", at(10*time.Second)), 63.5, true},
		{"half a minute old", node("63.5", at(31*time.Second)), 63.5, false},
		{"of the future", node("63.5", at(-time.Hour)), 63.5, false},
		{"without a time", node("63.5", ""), 63.5, false},
		{"nonsense", node("NaN", at(0)), 0, false},
	} {
		if got, ok := LiveWatts(tc.node, noon); ok != tc.ok || ok && got != tc.want {
			t.Errorf("%s: %v, %v", tc.name, got, ok)
		}
	}
}
