package power

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// The kinds of switches.
const (
	KindRedfish = "redfish"
	KindWebhook = "webhook"
)

// Machine binds a node to what switches its machine. Only those who configure the cluster write it.
type Machine struct {
	Node        string `json:"node"`
	UUID        string `json:"uuid"`             // of the system, as its firmware and the node's status say it
	Kind        string `json:"kind"`             // redfish or webhook
	URL         string `json:"url"`              // redfish: scheme and host; webhook: all of it
	System      string `json:"system,omitempty"` // path of the system, of redfish; "": the only one
	Username    string `json:"username,omitempty"`
	PasswordKey string `json:"passwordKey,omitempty"` // key in the Secret: the password, or what signs for a webhook
	Auth        string `json:"auth,omitempty"`        // of redfish: basic, by default, or session
	CAFile      string `json:"caFile,omitempty"`      // certificates that verify the server, in PEM
}

// ParseMachines reads machines in YAML, strictly. The error names every one that is wrong.
func ParseMachines(text []byte) ([]Machine, error) {
	var file struct {
		Machines []Machine `json:"machines"`
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return nil, fmt.Errorf("reading machines: %w", err)
	}
	return file.Machines, checkMachines(file.Machines)
}

var uuidForm = regexp.MustCompile(`^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`)

func checkMachines(all []Machine) error {
	var errs []error
	taken := map[string]bool{}
	for i := range all {
		m := &all[i]
		bad := func(wrong bool, format string, args ...any) {
			if wrong {
				errs = append(errs, fmt.Errorf("machines[%d] (%.80q): "+format, append([]any{i, m.Node}, args...)...))
			}
		}
		why := validation.IsDNS1123Subdomain(m.Node)
		bad(len(why) > 0, "node: %s", strings.Join(why, "; "))
		bad(!uuidForm.MatchString(m.UUID), "uuid is %.40q: want 8-4-4-4-12 hexadecimal digits", m.UUID)
		bad(m.Kind != KindRedfish && m.Kind != KindWebhook, "kind is %.40q: have %s, %s", m.Kind, KindRedfish, KindWebhook)
		for _, one := range []string{"node " + m.Node, "uuid " + strings.ToLower(m.UUID)} {
			bad(taken[one], "%s appears twice: each machine has one entry", one)
			taken[one] = true
		}
		if place := "url " + m.URL + m.System; m.Kind == KindRedfish {
			bad(taken[place], "url and system appear twice: name the system of each machine")
			taken[place] = true
		}
	}
	return errors.Join(errs...)
}
