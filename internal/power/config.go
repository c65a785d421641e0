package power

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched/sleep"
)

// Kinds of switches.
const (
	KindRedfish = "redfish"
	KindWebhook = "webhook"
)

// Machine assigns a machine and its power switch to a node. It is configured by cluster administrators only.
type Machine struct {
	Node        string `json:"node"`
	UUID        string `json:"uuid"`             // system UUID, as reported by the firmware and in the node's status
	Kind        string `json:"kind"`             // redfish or webhook
	URL         string `json:"url"`              // redfish: scheme and host; webhook: full URL
	System      string `json:"system,omitempty"` // redfish: path of the system; may be omitted if there is only one
	Username    string `json:"username,omitempty"`
	PasswordKey string `json:"passwordKey,omitempty"` // key of the password or signing key in the Secret
	Auth        string `json:"auth,omitempty"`        // redfish: basic (default) or session
	CAFile      string `json:"caFile,omitempty"`      // CA certificates of the server, in PEM format
}

// Config is the configuration file.
type Config struct {
	Mode     string    `json:"mode,omitempty"` // shadow (default) or enforce
	Policy   Policy    `json:"policy,omitzero"`
	Machines []Machine `json:"machines"`
	// KeysSecret is the name of the Secret with the keys, used by clients that read it from the API server.
	KeysSecret string `json:"keysSecret,omitempty"`
}

// Policy is a [sleep.Policy] with durations in their text format.
type Policy struct {
	sleep.Policy
	After metav1.Duration `json:"after,omitzero"`
	Lead  metav1.Duration `json:"lead,omitzero"`
}

// ParseConfig parses a configuration file strictly. The error lists all invalid fields.
func ParseConfig(text []byte) (Config, error) {
	p := sleep.DefaultPolicy()
	p.MinAwake = 1
	c := Config{Policy: Policy{Policy: p, Lead: metav1.Duration{Duration: p.Lead}}}
	if err := yaml.UnmarshalStrict(text, &c); err != nil {
		return Config{}, fmt.Errorf("reading machines: %w", err)
	}
	c.Mode = cmp.Or(c.Mode, ModeShadow)
	var errs []error
	if c.Mode != ModeShadow && c.Mode != ModeEnforce {
		errs = append(errs, fmt.Errorf("mode is %.40q: want %s or %s", c.Mode, ModeShadow, ModeEnforce))
	}
	p = c.Policy.core()
	if !(p.Headroom >= 0 && p.Headroom <= 10) || p.MinAwake < 0 || p.MaxCycles < 0 || p.After < 0 || p.Lead < 0 ||
		p.WakesPerMinute < 0 {
		errs = append(errs, errors.New("policy: headroom must be between 0 and 10, and no number may be negative"))
	}
	return c, errors.Join(append(errs, checkMachines(c.Machines))...)
}

// maxProbes is the maximum number of connections to the probe address.
const maxProbes = 32

// Configured returns the options in a configuration file. Decisions are appended to the file record, unless it is
// empty; "-" is standard output. It listens on the address probes for liveness probes, unless it is "0".
func Configured(file, record, probes string, log *slog.Logger) (o Options, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return o, fmt.Errorf("reading machines: %w", err)
	}
	c, err := ParseConfig(text)
	host, _ := os.Hostname() // optional, because the suffix is unique
	o = Options{
		Machines: c.Machines, Policy: c.Policy.core(), Mode: c.Mode, Identity: host + "_" + string(uuid.NewUUID()),
		Beats: &daemon.Heartbeats{}, Log: log,
	}
	if record != "" && err == nil {
		var w io.Writer
		w, err = kube.AppendTo(record)
		o.Record = RecordTo(w, log)
	}
	if probes != "0" && err == nil {
		o.Probes, err = daemon.Listen(probes, maxProbes, maxProbes)
	}
	return o, err
}

// core returns the policy for package sleep.
func (p *Policy) core() sleep.Policy {
	c := p.Policy
	c.After, c.Lead = p.After.Duration, p.Lead.Duration
	return c
}

var uuidForm = regexp.MustCompile(`^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`)

func checkMachines(all []Machine) error {
	var errs []error
	taken := map[string]bool{}
	for i := range all {
		m := &all[i]
		bad := func(wrong bool, format string, args ...any) {
			if wrong {
				errs = append(errs, fmt.Errorf("machines[%d] (%.80q): %s", i, m.Node, fmt.Sprintf(format, args...)))
			}
		}
		why := validation.IsDNS1123Subdomain(m.Node)
		bad(len(why) > 0, "node: %s", strings.Join(why, "; "))
		bad(!uuidForm.MatchString(m.UUID), "uuid is %.40q: want 8-4-4-4-12 hexadecimal digits", m.UUID)
		bad(m.Kind != KindRedfish && m.Kind != KindWebhook, "kind is %.40q: want %s or %s", m.Kind, KindRedfish,
			KindWebhook)
		for _, one := range []string{"node " + m.Node, "uuid " + strings.ToLower(m.UUID)} {
			bad(taken[one], "%s appears twice: each machine has one entry", one)
			taken[one] = true
		}
		if place := "url " + m.URL + m.System; m.Kind == KindRedfish {
			bad(taken[place], "url and system appear twice: set the system of each machine")
			taken[place] = true
		}
	}
	return errors.Join(errs...)
}
