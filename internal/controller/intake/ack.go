package intake

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// maxNames is the maximum size of all names in bytes, with a margin for the other fields of an acknowledgement.
const maxNames = batch.MaxAckBytes - 4096

// encodeAck encodes a [batch.Ack].
func encodeAck(epoch string, acked uint64, names []byte) []byte {
	return fmt.Appendf(nil, `{"epoch":%s,"acked":%d,"names":{%s}}`+"\n", appendText(nil, epoch), acked, names)
}

// encodeNames encodes the names of the node's own pods and their containers as members of a JSON object, in the order
// of the shares. The pods that exceed maxNames are omitted. It avoids the maps of [batch.Ack], because encoding them
// was a third of the cost of a batch.
func encodeNames(b *ledger.Booking, owners []*owner) (names []byte) {
	last, fits := "", 0
	for i, c := range b.Consumers {
		e := owners[i].pod
		if e == nil || c.Pod == "" {
			continue
		}
		uid, containerID, _ := energy.PodOf(b.Batch.Shares[i].ID)
		if uid != last {
			if last != "" {
				names = append(names, "}},"...)
			}
			if len(names) > maxNames {
				break
			}
			last, fits = uid, len(names)
			names = append(appendText(names, uid), `:{"namespace":`...)
			names = append(appendText(names, c.Account.Namespace), `,"pod":`...)
			names = append(appendText(names, c.Pod), `,"containers":{`...)
		}
		if name := e.container(containerID); name != "" {
			if names[len(names)-1] != '{' {
				names = append(names, ',')
			}
			names = append(appendText(names, containerID), ':')
			names = appendText(names, name)
		}
	}
	if len(names) > maxNames {
		names = names[:fits]
	} else if last != "" {
		names = append(names, "}}"...)
	}
	return bytes.TrimSuffix(names, []byte(","))
}

// appendText appends a JSON string. Plain text is the common case.
func appendText(b []byte, s string) []byte {
	if strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c >= 0x7f || c == '"' || c == '\\' }) {
		text, _ := json.Marshal(s) // strings can always be encoded
		return append(b, text...)
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
