package cmdutil

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/energy"
)

// LiveFor is the maximum age of a reading that is considered current. Estimates of nodes without an agent are made once
// a minute, so the maximum age of estimates is twice as long.
const LiveFor = 45 * time.Second

// PowerReading is the power of a node or a pod.
type PowerReading struct {
	Namespace   string         `json:"namespace,omitempty"`
	Name        string         `json:"name"`
	Node        string         `json:"node,omitempty"`
	Host        string         `json:"host,omitempty"` // host of a node that is a virtual machine
	Owner       string         `json:"owner,omitempty"`
	Watts       float64        `json:"watts"`
	IdleWatts   *float64       `json:"idleWatts,omitempty"`
	Source      string         `json:"source"`
	Quality     energy.Quality `json:"quality"`
	AsOf        time.Time      `json:"asOf"`
	AgeSeconds  float64        `json:"ageSeconds"`
	Stale       bool           `json:"stale"`
	Implausible bool           `json:"implausible,omitempty"`
	PowerState  string         `json:"powerState,omitempty"` // state of a machine that is not awake
	Celsius     *float64       `json:"celsius,omitempty"`
	TooHot      bool           `json:"tooHot,omitempty"`
	Findings    []string       `json:"findings,omitempty"` // problems that the agent has found on the node
}

// Nodes returns the current power of each node, including nodes of other clusters of a federation. Ages of readings
// are relative to the controller's clock.
func (c *ControllerClient) Nodes(ctx context.Context) ([]PowerReading, error) {
	var answer api.NodesPower
	now, err := c.Get(ctx, "/api/v1/nodes/power", nil, &answer)
	if err != nil {
		return nil, err
	}
	all := []PowerReading{}
	for _, n := range slices.Concat(answer.Nodes, answer.Members) {
		d := PowerReading{
			Name: n.Node, Host: n.Host, Watts: n.Watts, Source: n.Source, Quality: n.Quality, AsOf: n.AsOf,
			Implausible: n.Implausible, PowerState: n.PowerState, Findings: n.Findings,
		}
		if !n.Temperature.AsOf.IsZero() {
			d.Celsius = new(float64(n.Temperature.Celsius))
			_, d.TooHot = n.Temperature.Refuses(now)
		}
		all = append(all, aged(d, now))
	}
	return all, nil
}

// Pods returns the current power of each pod in all namespaces or in the namespace of the kubeconfig, which
// defaults to "default". Ages of readings are relative to the controller's clock.
func (c *ControllerClient) Pods(ctx context.Context, everywhere bool) ([]PowerReading, error) {
	path := "/api/v1/pods"
	if !everywhere {
		path = "/api/v1/namespaces/" + url.PathEscape(cmp.Or(c.Home, "default")) + "/pods"
	}
	var answer api.PodsPower
	now, err := c.Get(ctx, path, nil, &answer)
	if err != nil {
		return nil, err
	}
	all := make([]PowerReading, 0, len(answer.Pods))
	for _, p := range answer.Pods {
		owner := p.Owner
		if p.OwnerKind != "" {
			owner = p.OwnerKind + "/" + p.Owner
		}
		all = append(all, aged(PowerReading{
			Namespace: p.Namespace, Name: cmp.Or(p.Pod, p.UID), Node: p.Node, Owner: owner, Watts: p.Watts,
			IdleWatts: new(p.IdleWatts), Source: p.Source, Quality: p.Quality, AsOf: p.AsOf,
		}, now))
	}
	return all, nil
}

func aged(d PowerReading, now time.Time) PowerReading {
	age, most := max(0, now.Sub(d.AsOf)), LiveFor
	if d.Quality == energy.Estimated {
		most *= 2
	}
	d.AgeSeconds, d.Stale = age.Round(time.Second).Seconds(), age > most
	return d
}

// Age returns the age of the reading as text, followed by marks for stale or implausible readings, the host of a
// guest, the state of a machine that is not awake, and an overheated node.
func (d *PowerReading) Age() string {
	text := (time.Duration(d.AgeSeconds) * time.Second).String()
	var marks []string
	for _, mark := range []struct {
		applies bool
		text    string
	}{
		{d.Stale, "stale"}, {d.Implausible, "implausible"}, {d.Host != "", "guest of " + Printable(d.Host)},
		{d.PowerState != "", d.PowerState}, {d.TooHot, "too hot"},
	} {
		if mark.applies {
			marks = append(marks, mark.text)
		}
	}
	return strings.TrimSpace(text + " " + strings.Join(marks, ", "))
}
