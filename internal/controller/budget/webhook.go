package budget

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/dial"
)

// Message is the JSON body of a webhook request.
type Message struct {
	APIVersion string `json:"apiVersion"` // kubenergy.io/v1alpha1
	Kind       string `json:"kind"`       // EnergyBudgetNotice
	// Key is the same for all attempts to deliver a notification. It is also sent in the header Idempotency-Key.
	Key       string    `json:"key"`
	Time      time.Time `json:"time"`
	Namespace string    `json:"namespace"`
	Budget    string    `json:"budget"`             // name of the EnergyBudget, or Own
	Workload  string    `json:"workload,omitempty"` // kind/name, for budgets per workload
	At        int32     `json:"at"`
	Percent   float64   `json:"percent"`
	Exhausted bool      `json:"exhausted"`

	PeriodStart    *metav1.Time           `json:"periodStart,omitempty"`
	PeriodEnd      *metav1.Time           `json:"periodEnd,omitempty"`
	Limits         *v1alpha1.BudgetLimits `json:"limits"`
	Used           *v1alpha1.BudgetUse    `json:"used,omitempty"`
	EstimatedShare float64                `json:"estimatedShare"`
}

const (
	messageKind = "EnergyBudgetNotice"
	postTimeout = 10 * time.Second
	dialTimeout = 5 * time.Second
	maxAnswer   = 4 << 10
)

// poster sends a message to a webhook. If to is empty, the default webhook of the options is used.
type poster func(ctx context.Context, to string, m *Message) error

// webhooks posts messages to permitted URLs.
type webhooks struct {
	own    string         // default URL, set by administrators
	key    []byte         // signs messages; nil disables signing
	hosts  []string       // permitted hosts, in the format of [dial.Names]
	urls   dial.KeyReader // URLs of webhooks in the format secret:NAME
	client *http.Client
}

// webhookSecret is the prefix of the name of a URL in a Secret.
const webhookSecret = "secret:"

func newWebhooks(own string, key []byte, hosts []string, urls dial.KeyReader) (*webhooks, error) {
	w := &webhooks{
		own: own, key: key, hosts: hosts, urls: urls,
		client: dial.NewClient(dial.Options{Timeout: dialTimeout, Policy: dial.Policy{Private: true, Loopback: true}}),
	}
	for _, h := range hosts {
		name := strings.Trim(h, "[]")
		if of, port, err := net.SplitHostPort(h); err == nil {
			if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || of == "" {
				return nil, fmt.Errorf("webhook host %q: want host or host:port", h)
			}
			name = of
		}
		if name == "" || strings.ContainsAny(name, "/@ ") {
			return nil, fmt.Errorf("webhook host %q: want host or host:port", h)
		}
	}
	return w, nil
}

// allows reports whether the host of a URL is permitted by administrators.
func (w *webhooks) allows(u *url.URL) bool {
	return slices.ContainsFunc(w.hosts, func(host string) bool { return dial.Names(host, u) })
}

// target returns the URL of a webhook. The author of a budget can specify any URL, so its host must be permitted by
// administrators.
func (w *webhooks) target(to string) (*url.URL, error) {
	administrators := to == ""
	if to = cmp.Or(to, w.own); to == "" {
		return nil, errors.New("no webhook is configured in the action or in the options of the controller")
	}
	if name, ok := strings.CutPrefix(to, webhookSecret); ok {
		var err error
		if to, err = w.urls.Key(name); err != nil {
			return nil, fmt.Errorf("reading %s: %w", webhookSecret+name, err)
		}
		administrators = true
	}
	u, err := url.Parse(to)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, errors.New("the URL of the webhook is invalid")
	}
	if !administrators && !w.allows(u) {
		return nil, errors.New("the host and port of the webhook URL are not permitted by the controller flag " +
			"--webhook-host (chart value budgets.webhookHosts)")
	}
	return u, nil
}

// post sends a message to a webhook.
func (w *webhooks) post(ctx context.Context, to string, m *Message) error {
	u, err := w.target(to)
	if err != nil {
		return err
	}
	body, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("marshaling the message: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, postTimeout)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return errors.New("the URL of the webhook is invalid")
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Idempotency-Key", m.Key)
	q.Header.Set("User-Agent", "kubenergy-controller")
	if w.key != nil {
		dial.Sign(q, w.key, body)
	}
	answer, err := w.client.Do(q)
	if err != nil {
		// the error may contain a URL with secrets
		return fmt.Errorf("calling the webhook at %s: %s", u.Hostname(), dial.Cause(err, postTimeout))
	}
	defer answer.Body.Close()
	_, _ = io.CopyN(io.Discard, answer.Body, maxAnswer) // allows the connection to be reused
	if answer.StatusCode < http.StatusOK || answer.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("the webhook at %s responded with status %d", u.Hostname(), answer.StatusCode)
	}
	return nil
}
