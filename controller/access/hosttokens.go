package access

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/energy"
)

// A Host is a machine outside of the cluster, whose agent has a token of its own.
type Host struct {
	Node     string       // what the agent calls it
	MaxPower energy.Watts // 0: not said
	Site     string       // "": not said
}

// HostTokens are the tokens of agents outside the cluster, from a file such as
//
//	hosts:
//	- node: rack1
//	  tokenSHA256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
//	  maxPowerWatts: 800
//	  site: north
//
// which is read anew when it has changed. The nil HostTokens hold no token.
type HostTokens struct {
	path string
	now  func() time.Time
	log  *slog.Logger
	salt []byte // so that how long it takes to find a token says nothing about those in the file

	mu      sync.Mutex
	looked  time.Time
	read    fs.FileInfo // nil: there was no file
	failed  string      // what was logged last
	byToken map[[sha256.Size]byte]*hostToken
	byNode  map[string]*hostToken
}

type hostToken struct {
	Host
	digest [sha256.Size]byte
}

// How a file may be.
const (
	mostHostBytes = 8 << 20
	mostHosts     = 20_000
	mostNodeName  = 253
	mostSiteName  = 253
	mostHostPower = 1e6             // watts
	lookEvery     = 5 * time.Second // at whether it has changed
)

// NewHostTokens reads a file; the error says what is wrong with it. A file that breaks later is told of in the log, and
// what it held before goes on counting; one that is removed takes all tokens with it. Without a file there is no token.
func NewHostTokens(path string, now func() time.Time, log *slog.Logger) (*HostTokens, error) {
	if path == "" {
		return nil, nil
	}
	h := &HostTokens{path: path, now: now, log: log, salt: make([]byte, sha256.Size)}
	_, _ = rand.Read(h.salt) // never fails
	h.looked = now()
	return h, h.reload()
}

// Find returns the host that a token belongs to.
func (h *HostTokens) Find(token string) (Host, bool) {
	if h == nil || !plausibleToken(token) {
		return Host{}, false
	}
	digest := sha256.Sum256([]byte(token))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.look()
	found := h.byToken[h.place(digest)]
	if found == nil || subtle.ConstantTimeCompare(found.digest[:], digest[:]) != 1 {
		return Host{}, false
	}
	return found.Host, true
}

// Host returns what the file says of a node.
func (h *HostTokens) Host(node string) (Host, bool) {
	if h == nil {
		return Host{}, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.look()
	if found := h.byNode[node]; found != nil {
		return found.Host, true
	}
	return Host{}, false
}

func (h *HostTokens) place(digest [sha256.Size]byte) [sha256.Size]byte {
	mac := hmac.New(sha256.New, h.salt)
	mac.Write(digest[:])
	return [sha256.Size]byte(mac.Sum(nil))
}

// look reads the file if it has changed since it was read.
func (h *HostTokens) look() {
	now := h.now()
	if now.Sub(h.looked).Abs() < lookEvery {
		return
	}
	h.looked = now
	info, err := os.Stat(h.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if len(h.byNode) > 0 || h.read != nil {
			h.log.Warn("the file of hosts' tokens is gone: no host is let in")
		}
		h.byToken, h.byNode, h.read = nil, nil, nil
		return
	case err == nil && h.read != nil && os.SameFile(info, h.read) && info.ModTime().Equal(h.read.ModTime()) &&
		info.Size() == h.read.Size():
		return
	}
	if err == nil {
		err = h.reload()
	}
	if err == nil {
		h.failed = ""
	} else if err.Error() != h.failed {
		h.failed = err.Error()
		h.log.Error("reading the file of hosts' tokens: what it held before goes on counting", "error", err)
	}
}

func (h *HostTokens) reload() error {
	f, err := os.Open(h.path)
	if err != nil {
		return fmt.Errorf("reading hosts' tokens: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("reading hosts' tokens: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(f, mostHostBytes+1))
	if err != nil {
		return fmt.Errorf("reading hosts' tokens: %w", err)
	}
	hosts, err := parseHosts(data)
	if err != nil {
		return fmt.Errorf("reading hosts' tokens: %w", err)
	}
	h.byToken, h.byNode = make(map[[sha256.Size]byte]*hostToken, len(hosts)), make(map[string]*hostToken, len(hosts))
	for i := range hosts {
		h.byNode[hosts[i].Node] = &hosts[i]
		h.byToken[h.place(hosts[i].digest)] = &hosts[i]
	}
	h.read = info
	return nil
}

// parseHosts reads a file. Errors name nodes and lines, never what a line holds beyond that: a user may have put the
// token itself where its sum belongs.
func parseHosts(data []byte) ([]hostToken, error) {
	if len(data) > mostHostBytes {
		return nil, fmt.Errorf("more than %d bytes", mostHostBytes)
	}
	var file struct {
		Hosts []hostEntry `json:"hosts"`
	}
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		return nil, errors.New("it is not a list hosts of node, tokenSHA256, maxPowerWatts and site")
	}
	if len(file.Hosts) > mostHosts {
		return nil, fmt.Errorf("%d hosts: at most %d", len(file.Hosts), mostHosts)
	}
	hosts := make([]hostToken, 0, len(file.Hosts))
	nodes, sums := map[string]bool{}, map[[sha256.Size]byte]bool{}
	for i := range file.Hosts {
		t, err := file.Hosts[i].read()
		switch {
		case err != nil:
			return nil, fmt.Errorf("host %d: %w", i+1, err)
		case nodes[t.Node]:
			return nil, fmt.Errorf("host %d: node %q is there twice", i+1, t.Node)
		case sums[t.digest]:
			return nil, fmt.Errorf("host %d, node %q: another node has the same token", i+1, t.Node)
		}
		nodes[t.Node], sums[t.digest] = true, true
		hosts = append(hosts, t)
	}
	return hosts, nil
}

// hostEntry is a host as the file says it.
type hostEntry struct {
	Node   string  `json:"node"`
	SHA256 string  `json:"tokenSHA256"`
	Power  float64 `json:"maxPowerWatts"`
	Site   string  `json:"site"`
}

func (e *hostEntry) read() (hostToken, error) {
	t := hostToken{Host: Host{Node: e.Node, MaxPower: energy.Watts(e.Power), Site: e.Site}}
	digest, err := hex.DecodeString(e.SHA256)
	switch {
	case !plausibleName(e.Node, mostNodeName):
		return t, fmt.Errorf("node is no name of 1 to %d characters", mostNodeName)
	case err != nil || len(digest) != sha256.Size:
		return t, fmt.Errorf("node %q: tokenSHA256 is not the SHA-256 of a token in hex", e.Node)
	case [sha256.Size]byte(digest) == sha256.Sum256(nil):
		return t, fmt.Errorf("node %q: tokenSHA256 is that of no token at all", e.Node)
	case !(e.Power >= 0 && e.Power <= mostHostPower):
		return t, fmt.Errorf("node %q: maxPowerWatts: 0 to %.0f", e.Node, mostHostPower)
	case e.Site != "" && !plausibleName(e.Site, mostSiteName):
		return t, fmt.Errorf("node %q: site is no name", e.Node)
	}
	t.digest = [sha256.Size]byte(digest)
	return t, nil
}

func plausibleName(s string, most int) bool { return len(s) <= most && plausibleToken(s) }
