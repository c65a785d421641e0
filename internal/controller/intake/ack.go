package intake

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// named contains the names of a pod and of some of its containers.
type named struct {
	uid, namespace, pod string
	containers          []namedContainer
}

type namedContainer struct{ id, name string }

// namesOf returns the names of the node's own pods and their containers, in the order of the shares.
func namesOf(b *ledger.Booking, owners []*owner) (names []named) {
	for i, c := range b.Consumers {
		e := owners[i].pod
		if e == nil || c.Pod == "" {
			continue
		}
		uid, containerID, _ := energy.PodOf(b.Batch.Shares[i].ID)
		last := len(names) - 1
		if last < 0 || names[last].uid != uid {
			names = append(names, named{uid: uid, namespace: c.Account.Namespace, pod: c.Pod})
			last++
		}
		if name := e.container(containerID); name != "" {
			names[last].containers = append(names[last].containers, namedContainer{containerID, name})
		}
	}
	return names
}

// appendAck appends an acknowledgement with as many names as fit into [batch.MaxAckBytes]. The output equals that
// of encoding/json for a [batch.Ack] except for the order of keys. It avoids the maps of that type, because
// encoding them was a third of the cost of a batch.
func appendAck(b []byte, epoch string, acked uint64, names []named) []byte {
	b = append(b, `{"epoch":`...)
	b = appendText(b, epoch)
	b = append(b, `,"acked":`...)
	b = strconv.AppendUint(b, acked, 10)
	const end = len("}}\n")
	open := false
	for i := range names {
		before := len(b)
		if !open {
			b = append(b, `,"names":{`...)
		} else {
			b = append(b, ',')
		}
		b = appendNamed(b, &names[i])
		if len(b)+end > batch.MaxAckBytes {
			b = b[:before]
			break
		}
		open = true
	}
	if open {
		b = append(b, '}')
	}
	return append(b, "}\n"...)
}

func appendNamed(b []byte, n *named) []byte {
	b = appendText(b, n.uid)
	b = append(b, `:{"namespace":`...)
	b = appendText(b, n.namespace)
	b = append(b, `,"pod":`...)
	b = appendText(b, n.pod)
	for i := range n.containers {
		if i == 0 {
			b = append(b, `,"containers":{`...)
		} else {
			b = append(b, ',')
		}
		b = appendText(b, n.containers[i].id)
		b = append(b, ':')
		b = appendText(b, n.containers[i].name)
	}
	if len(n.containers) > 0 {
		b = append(b, '}')
	}
	return append(b, '}')
}

func appendText(b []byte, s string) []byte {
	if strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c >= 0x7f || c == '"' || c == '\\' }) {
		text, _ := json.Marshal(s) // strings can always be encoded
		return append(b, text...)
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
