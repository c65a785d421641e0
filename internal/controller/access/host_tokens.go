package access

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube"
)

// A Host is a machine outside the cluster with an agent that has its own token.
type Host struct {
	Node     string       // node name reported by the agent
	MaxPower energy.Watts // 0 if not set
	Site     string       // empty if not set
}

// HostTokens authenticates agents outside the cluster with the tokens of a file in this format:
//
//	hosts:
//	- node: rack1
//	  tokenSHA256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
//	  previousTokenSHA256: … # also accepted, for token rotation
//	  maxPowerWatts: 800
//	  site: north
//
// The file is reloaded when it changes. A nil HostTokens contains no tokens. HostTokens is safe for concurrent use.
type HostTokens struct {
	path string
	now  func() time.Time
	log  *slog.Logger

	mu     sync.Mutex
	looked time.Time
	file   kube.File[hosts]
}

// hosts is the content of the file.
type hosts struct {
	byNode  map[string]Host
	byToken map[digest]Host // keyed by digest, so the lookup time does not reveal the token
}

// digest is the SHA-256 of a token.
type digest = [sha256.Size]byte

// Limits of the file.
const (
	maxHosts     = 20_000
	maxNodeName  = 253
	maxSiteName  = 253
	maxHostPower = 1e6             // in watts
	lookEvery    = 5 * time.Second // interval of checks for changes
)

// NewHostTokens loads the file and returns an error if it is invalid. If a later version of the file is invalid,
// the error is logged and the previous contents remain in effect. If the file is removed, all tokens become
// invalid. If path is empty, it returns nil.
func NewHostTokens(path string, now func() time.Time, log *slog.Logger) (*HostTokens, error) {
	if path == "" {
		return nil, nil
	}
	h := &HostTokens{path: path, now: now, log: log, looked: now()}
	h.file.Poll(path, parseHosts, log)
	if h.file.Err != nil {
		return nil, fmt.Errorf("reading host tokens: %w", h.file.Err)
	}
	return h, nil
}

// Find returns the host with the given token.
func (h *HostTokens) Find(token string) (Host, bool) {
	host, found := h.known().byToken[sha256.Sum256([]byte(token))]
	return host, found
}

// Host returns the entry of a node.
func (h *HostTokens) Host(node string) (Host, bool) {
	host, found := h.known().byNode[node]
	return host, found
}

// known returns the current contents of the file. The maps must not be modified.
func (h *HostTokens) known() hosts {
	if h == nil {
		return hosts{}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now().Sub(h.looked).Abs() >= lookEvery {
		h.looked = h.now()
		h.file.Poll(h.path, parseHosts, h.log)
	}
	if errors.Is(h.file.Err, fs.ErrNotExist) {
		h.file.Content = hosts{}
	}
	return h.file.Content
}

// parseHosts parses the file. Errors contain node names and entry numbers only, because a user may have entered a
// token instead of its digest.
func parseHosts(data []byte) (hosts, error) {
	var file struct {
		Hosts []hostEntry `json:"hosts"`
	}
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		return hosts{}, errors.New("want a list hosts with the fields node, tokenSHA256, maxPowerWatts and site")
	}
	if len(file.Hosts) > maxHosts {
		return hosts{}, fmt.Errorf("%d hosts, want at most %d", len(file.Hosts), maxHosts)
	}
	all := hosts{map[string]Host{}, map[digest]Host{}}
	for i := range file.Hosts {
		host, tokens, err := file.Hosts[i].read()
		if err != nil {
			return hosts{}, fmt.Errorf("host %d: %w", i+1, err)
		}
		if _, twice := all.byNode[host.Node]; twice {
			return hosts{}, fmt.Errorf("host %d: duplicate node %q", i+1, host.Node)
		}
		all.byNode[host.Node] = host
		for _, token := range tokens {
			if _, twice := all.byToken[token]; twice {
				return hosts{}, fmt.Errorf("host %d, node %q: duplicate token", i+1, host.Node)
			}
			all.byToken[token] = host
		}
	}
	return all, nil
}

// hostEntry is an entry of the file.
type hostEntry struct {
	Node     string  `json:"node"`
	SHA256   string  `json:"tokenSHA256"`
	Previous string  `json:"previousTokenSHA256"`
	Power    float64 `json:"maxPowerWatts"`
	Site     string  `json:"site"`
}

func (e *hostEntry) read() (host Host, tokens []digest, err error) {
	if !plausibleName(e.Node, maxNodeName) || strings.Contains(e.Node, "/") { // reserved for CLUSTER/NODE
		return Host{}, nil, fmt.Errorf("node must be a name of 1 to %d characters without a slash", maxNodeName)
	}
	for key, text := range map[string]string{"tokenSHA256": e.SHA256, "previousTokenSHA256": e.Previous} {
		if text == "" && key != "tokenSHA256" {
			continue
		}
		sum, err := hex.DecodeString(text)
		switch {
		case err != nil || len(sum) != sha256.Size:
			return Host{}, nil, fmt.Errorf("node %q: %s is not a hex-encoded SHA-256 digest", e.Node, key)
		case digest(sum) == sha256.Sum256(nil):
			return Host{}, nil, fmt.Errorf("node %q: %s is the digest of an empty token", e.Node, key)
		}
		tokens = append(tokens, digest(sum))
	}
	switch {
	case !(e.Power >= 0 && e.Power <= maxHostPower):
		err = fmt.Errorf("node %q: maxPowerWatts must be between 0 and %.0f", e.Node, maxHostPower)
	case e.Site != "" && !plausibleName(e.Site, maxSiteName):
		err = fmt.Errorf("node %q: site is not a valid name", e.Node)
	default:
		return Host{Node: e.Node, MaxPower: energy.Watts(e.Power), Site: e.Site}, tokens, nil
	}
	return Host{}, nil, err
}

func plausibleName(s string, most int) bool { return len(s) <= most && plausibleToken(s) }
