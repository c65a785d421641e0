package access

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/internal/energy"
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

	mu      sync.Mutex
	looked  time.Time
	read    fs.FileInfo // nil if the file does not exist
	failed  string      // last logged error
	byNode  map[string]Host
	byToken map[digest]Host // keyed by digest, so the lookup time does not reveal the token
}

// digest is the SHA-256 of a token.
type digest = [sha256.Size]byte

// Limits of the file.
const (
	maxHostBytes = 8 << 20
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
	return h, h.reload()
}

// Find returns the host with the given token.
func (h *HostTokens) Find(token string) (Host, bool) {
	_, byToken := h.known()
	host, found := byToken[sha256.Sum256([]byte(token))]
	return host, found
}

// Host returns the entry of a node.
func (h *HostTokens) Host(node string) (Host, bool) {
	byNode, _ := h.known()
	host, found := byNode[node]
	return host, found
}

// known returns the current contents of the file. The maps must not be modified.
func (h *HostTokens) known() (map[string]Host, map[digest]Host) {
	if h == nil {
		return nil, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now().Sub(h.looked).Abs() >= lookEvery {
		h.looked = h.now()
		h.look()
	}
	return h.byNode, h.byToken
}

// look reloads the file if it has changed. The caller must hold mu.
func (h *HostTokens) look() {
	err := h.reload()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if h.read != nil {
			h.log.Warn("Host token file was removed, rejecting all hosts")
		}
		h.byToken, h.byNode, h.read = nil, nil, nil
	case err == nil:
		h.failed = ""
	case err.Error() != h.failed:
		h.failed = err.Error()
		h.log.Error("Failed to reload host tokens, using the previous ones", "error", err)
	}
}

// reload reads the file unless it is unchanged.
func (h *HostTokens) reload() error {
	info, err := os.Stat(h.path)
	if err == nil && h.read != nil && os.SameFile(info, h.read) && info.ModTime().Equal(h.read.ModTime()) &&
		info.Size() == h.read.Size() {
		return nil
	}
	var data []byte
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxHostBytes) {
		err = fmt.Errorf("not a regular file, or larger than %d bytes", maxHostBytes)
	}
	if err == nil {
		data, err = os.ReadFile(h.path)
	}
	if err == nil {
		var byNode map[string]Host
		var byToken map[digest]Host
		if byNode, byToken, err = parseHosts(data); err == nil {
			h.byNode, h.byToken, h.read = byNode, byToken, info
			return nil
		}
	}
	return fmt.Errorf("reading host tokens: %w", err)
}

// parseHosts parses the file. Errors contain node names and entry numbers only, because a user may have entered a
// token instead of its digest.
func parseHosts(data []byte) (byNode map[string]Host, byToken map[digest]Host, err error) {
	var file struct {
		Hosts []hostEntry `json:"hosts"`
	}
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		return nil, nil, errors.New("want a list hosts with the fields node, tokenSHA256, maxPowerWatts and site")
	}
	if len(file.Hosts) > maxHosts {
		return nil, nil, fmt.Errorf("%d hosts, want at most %d", len(file.Hosts), maxHosts)
	}
	byNode, byToken = map[string]Host{}, map[digest]Host{}
	for i := range file.Hosts {
		host, tokens, err := file.Hosts[i].read()
		if err != nil {
			return nil, nil, fmt.Errorf("host %d: %w", i+1, err)
		}
		if _, twice := byNode[host.Node]; twice {
			return nil, nil, fmt.Errorf("host %d: duplicate node %q", i+1, host.Node)
		}
		byNode[host.Node] = host
		for _, token := range tokens {
			if _, twice := byToken[token]; twice {
				return nil, nil, fmt.Errorf("host %d, node %q: duplicate token", i+1,
					host.Node)
			}
			byToken[token] = host
		}
	}
	return byNode, byToken, nil
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
