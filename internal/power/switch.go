package power

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/controller/meter"
)

// Switch powers one machine on and off.
type Switch interface {
	State(ctx context.Context) (on bool, uuid string, err error)
	Off(ctx context.Context) error // requests a graceful shutdown; never powers off by force
	On(ctx context.Context) error
}

// KeysDir is the mount path of the Secret with the keys in kubenergy-power.
const KeysDir = "/etc/kubenergy/power-keys"

// NewSwitches returns the switches of the machines of a [Config] by node. The error lists all machines with an invalid
// switch, which are omitted.
func NewSwitches(all []Machine, keys dial.KeyReader, loopback bool) (map[string]Switch, error) {
	switches := make(map[string]Switch, len(all))
	var errs []error
	for i := range all {
		m := &all[i]
		var power Switch
		var err error
		if m.Kind == KindRedfish {
			power, err = NewSystem(meter.Entry{
				Node: m.Node, Kind: meter.KindRedfish, URL: m.URL, Username: m.Username, PasswordKey: m.PasswordKey,
				Auth: m.Auth, CAFile: m.CAFile,
			}, m.System, &meter.Deps{Keys: keys, Loopback: loopback})
		} else {
			power, err = newWebhook(m, keys, loopback)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("machines[%d] (%.80q): %w", i, m.Node, err))
			continue
		}
		switches[m.Node] = power
	}
	return switches, errors.Join(errs...)
}

// closeAll ends all sessions, because management controllers support only a few.
func closeAll(switches map[string]Switch) {
	ctx, cancel := context.WithTimeout(context.Background(), usual.call)
	defer cancel()
	var work errgroup.Group
	for _, s := range switches {
		if system, ok := s.(*System); ok {
			work.Go(func() error { system.Close(ctx); return nil })
		}
	}
	_ = work.Wait() // Close returns no error
}

// errUnsure is returned if the power state cannot be determined.
var errUnsure = errors.New("the webhook cannot determine whether it is on")

// webhook delegates power control to an HTTP server.
type webhook struct {
	dial.Client

	machine *Machine
	url     *url.URL
	keys    dial.KeyReader
}

const webhookTimeout = 20 * time.Second

func newWebhook(m *Machine, keys dial.KeyReader, loopback bool) (*webhook, error) {
	u, err := url.Parse(m.URL)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil {
		return nil, errors.New("invalid url: want http://host/path or https://host/path, without a user")
	}
	roots, err := meter.Roots(m.CAFile)
	if err != nil {
		return nil, err
	}
	w := &webhook{machine: m, url: u, keys: keys}
	w.Now, w.Timeout, w.Good = time.Now, webhookTimeout, []int{http.StatusAccepted, http.StatusNoContent}
	w.HTTP = dial.NewClient(dial.Options{
		Policy: dial.Policy{Private: true, Loopback: loopback}, Timeout: w.Timeout, Roots: roots,
	})
	return w, nil
}

func (w *webhook) post(ctx context.Context, action string) ([]byte, error) {
	body, err := json.Marshal(map[string]string{
		"node": w.machine.Node, "uuid": w.machine.UUID, "action": action, "at": w.Now().UTC().Format(time.RFC3339),
	})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url.String(), bytes.NewReader(body))
	if err != nil {
		return nil, dial.Refuse(dial.ReasonAddress, "the webhook has an invalid url")
	}
	req.Header.Set("Content-Type", "application/json")
	if w.machine.PasswordKey != "" {
		key, err := w.Key(w.keys, w.machine.PasswordKey, w.url, w.url.Host)
		if err != nil {
			return nil, err
		}
		dial.Sign(req, []byte(key), body)
	}
	answer, _, err := w.Exchange(ctx, req)
	return answer, err
}

// State implements [Switch].
func (w *webhook) State(ctx context.Context) (on bool, uuid string, err error) {
	body, err := w.post(ctx, "state")
	if err != nil {
		return false, "", err
	}
	var answer struct {
		On   json.RawMessage `json:"on"`
		UUID string          `json:"uuid"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		answer.On = nil
	}
	switch string(answer.On) {
	case "true", "false":
		return string(answer.On) == "true", answer.UUID, nil
	case "null":
		return false, "", errUnsure
	}
	return false, "", dial.Refuse(dial.ReasonShape, `the webhook returned %.80q: want {"on": true, "uuid": "…"}`,
		cmp.Or(w.Secrets.Conceal(string(body)), "nothing"))
}

// On implements [Switch].
func (w *webhook) On(ctx context.Context) error { _, err := w.post(ctx, "on"); return err }

// Off implements [Switch].
func (w *webhook) Off(ctx context.Context) error { _, err := w.post(ctx, "off"); return err }
