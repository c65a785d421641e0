package power

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type testKeys map[string]string

func (k testKeys) Key(name string) (string, error) {
	if key, ok := k[name]; ok {
		return key, nil
	}
	return "", fs.ErrNotExist
}

const someUUID = "4c4c4544-0042-3510-8054-b4c04f564433"

// bmc is a Redfish service with one system.
type bmc struct {
	state, types string
	session      bool
	resets       []string
}

func (b *bmc) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	user, password, _ := r.BasicAuth()
	switch {
	case b.session && r.Method == http.MethodPost && r.URL.Path == "/redfish/v1/SessionService/Sessions":
		if string(body) == `{"Password":"sesame","UserName":"admin"}` {
			w.Header().Set("X-Auth-Token", "token")
			w.WriteHeader(http.StatusCreated)
			return
		}
		fallthrough
	case b.session && r.Header.Get("X-Auth-Token") != "token", !b.session && (user != "admin" || password != "sesame"):
		w.WriteHeader(http.StatusUnauthorized)
	case r.Method == http.MethodPost && r.URL.Path == "/redfish/v1/Systems/1/Actions/Reset":
		b.resets = append(b.resets, string(body))
		w.WriteHeader(http.StatusAccepted)
	case r.URL.Path == "/redfish/v1/Systems":
		_, _ = io.WriteString(w, `{"Members": [{"@odata.id": "/redfish/v1/Systems/1"}]}`)
	case r.URL.Path == "/redfish/v1/Systems/1":
		_, _ = fmt.Fprintf(w, `{"PowerState": %q, "UUID": %q, "Actions": {"#ComputerSystem.Reset": {
			"target": "/redfish/v1/Systems/1/Actions/Reset", "ResetType@Redfish.AllowableValues": [%s]}}}`, b.state,
			strings.ToUpper(someUUID), b.types)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func TestRedfish(t *testing.T) {
	for _, auth := range []string{"", "session"} {
		b := &bmc{state: "On", session: auth == "session", types: `"On", "ForceOff", "GracefulShutdown"`}
		server := httptest.NewTLSServer(b)
		t.Cleanup(server.Close)
		ca := filepath.Join(t.TempDir(), "ca.crt")
		if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{
			Type: "CERTIFICATE", Bytes: server.Certificate().Raw,
		}), 0o600); err != nil {
			t.Fatal(err)
		}
		m := Machine{
			Node: "n", UUID: someUUID, Kind: KindRedfish, URL: server.URL, PasswordKey: "bmc", Auth: auth, CAFile: ca,
		}
		all, err := NewSwitches([]Machine{m}, testKeys{"bmc": "sesame"}, true)
		if err != nil {
			t.Fatal(err)
		}
		s := all["n"]
		if on, uuid, err := s.State(t.Context()); !on || !strings.EqualFold(uuid, someUUID) || err != nil {
			t.Error(on, uuid, err)
		}
		if err := s.Off(t.Context()); err != nil {
			t.Error(err)
		}
		b.state = "Off"
		if on, _, err := s.State(t.Context()); on || err != nil {
			t.Error(on, err)
		}
		if err := s.On(t.Context()); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{`{"ResetType":"GracefulShutdown"}`, `{"ResetType":"On"}`}, b.resets); diff != "" {
			t.Error(diff)
		}
		b.types = `"On", "ForceOff"` // it is never forced
		if err := s.Off(t.Context()); err == nil || !refused(err) || len(b.resets) != 2 {
			t.Error(err, b.resets)
		}
		b.state = "Unknown"
		if _, _, err := s.State(t.Context()); err == nil {
			t.Error("accepted an unknown power state")
		}
	}
}

func TestWebhook(t *testing.T) {
	var reported []string
	answer := `{"on": true, "uuid": "` + someUUID + `"}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		sum := hmac.New(sha256.New, []byte("sesame"))
		sum.Write(body)
		if r.Header.Get("X-Kubenergy-Signature-256") != "sha256="+hex.EncodeToString(sum.Sum(nil)) {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		reported = append(reported, string(body))
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	all, err := NewSwitches([]Machine{{
		Node: "n", UUID: someUUID, Kind: KindWebhook, URL: server.URL + "/power", PasswordKey: "key",
	}}, testKeys{"key": "sesame"}, true)
	if err != nil {
		t.Fatal(err)
	}
	s := all["n"]
	if on, uuid, err := s.State(t.Context()); !on || uuid != someUUID || err != nil {
		t.Error(on, uuid, err)
	}
	if err := s.Off(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.On(t.Context()); err != nil {
		t.Error(err)
	}
	for i, action := range []string{"state", "off", "on"} {
		var body struct {
			Action, Node, UUID string
			At                 time.Time
		}
		if err := json.Unmarshal([]byte(reported[i]), &body); err != nil || body.Action != action || body.Node != "n" ||
			body.UUID != someUUID || time.Since(body.At) > time.Minute {
			t.Errorf("%s: want %s of n, now (%v)", reported[i], action, err)
		}
	}
	answer = `{"on": null}`
	if _, _, err := s.State(t.Context()); !errors.Is(err, errUnsure) {
		t.Error(err)
	}
	for _, answer = range []string{"", "{}", `{"on": "yes"}`, "on"} {
		if _, _, err := s.State(t.Context()); err == nil {
			t.Errorf("accepted response %q", answer)
		}
	}
}

func TestConfig(t *testing.T) {
	const good = `
mode: enforce
policy: {headroom: 0.2, after: 5m}
machines:
- {node: n1, uuid: 4c4c4544-0042-3510-8054-b4c04f564433, kind: redfish, url: "https://bmc1", passwordKey: bmc}
- {node: n2, uuid: 4c4c4544-0042-3510-8054-b4c04f564434, kind: webhook, url: "https://power/n2"}
`
	c, err := ParseConfig([]byte(good))
	if err != nil || len(c.Machines) != 2 || c.Mode != ModeEnforce {
		t.Fatalf("%+v, %v", c, err)
	}
	if p := c.Policy.core(); p.Headroom != 0.2 || p.After.Minutes() != 5 || p.MinAwake != 1 || p.MaxCycles != 12 {
		t.Errorf("%+v", p)
	}
	if c, err := ParseConfig([]byte("machines: []")); err != nil || c.Mode != ModeShadow {
		t.Error("shadow is not the default mode", c, err)
	}
	for from, to := range map[string]string{
		"mode: enforce": "mode: on", "headroom: 0.2": "headroom: -1", "node: n2": "node: n1", "564434": "564433",
		"kind: redfish": "kind: ipmi", "b4c04f564434": "x", "n2, uuid": "n_2, uuid", "after": "afterwards",
	} {
		if _, err := ParseConfig([]byte(strings.Replace(good, from, to, 1))); err == nil {
			t.Errorf("accepted %s", to)
		}
	}
	for _, url := range []string{"https://bmc1/redfish", "http://bmc1", "bmc1"} {
		machines := slices.Clone(c.Machines)
		machines[0].URL = url
		if _, err := NewSwitches(machines, nil, false); err == nil {
			t.Errorf("accepted %s", url)
		}
	}
}
