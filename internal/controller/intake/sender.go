package intake

import (
	"errors"
	"net/http"

	"github.com/kubenergy/kubenergy/internal/controller/access"
)

// sender is the authenticated sender of a batch.
type sender struct {
	node    string
	user    string
	address string
	outside bool // outside the cluster
}

// sender authenticates a request and returns the node that it may send batches of.
func (h *Handler) sender(r *http.Request) (*sender, *reply) {
	token := access.Token(r)
	if host, ok := h.c.Agents.Find(token); ok {
		return &sender{node: host.Node, user: "host", address: r.RemoteAddr, outside: true}, nil
	}
	u, err := h.c.Gate.Agent(access.From(r), token)
	switch {
	case errors.Is(err, access.ErrUnauthenticated):
		return nil, h.stranger("unauthenticated", err)
	case err != nil:
		return nil, h.stranger("busy", err)
	}
	forbid := func(text string) (*sender, *reply) {
		h.logThrottled("Rejected batch of a user that is not an agent", "user", u.Username, "from", r.RemoteAddr, "why",
			text)
		return nil, refused("forbidden", http.StatusForbidden, text)
	}
	switch {
	case h.c.AgentUser == "" || u.Username != h.c.AgentUser:
		return forbid("only agents may send batches")
	case u.Node() == "":
		return forbid("the token is not bound to a node: want the token of a pod in Kubernetes 1.30 or newer")
	}
	return &sender{node: u.Node(), user: u.Username, address: r.RemoteAddr}, nil
}
