package batch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Limits of an acknowledgement. Names beyond them are dropped, because recording energy does not depend on them.
const (
	MaxAckBytes = 1 << 20
	maxNamed    = 10_000 // pods, and containers of one
)

// Encode returns b encoded as JSON for the request body.
func Encode(b *Batch) ([]byte, error) {
	out := *b
	if out.Shares == nil {
		out.Shares = []energy.Share{}
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // paths of control groups may contain & and <
	if err := enc.Encode(out); err != nil {
		return nil, fmt.Errorf("encoding: %w", err)
	}
	return buf.Bytes(), nil
}

// Decode decodes and validates a batch. It rejects unknown fields, because they could change the meaning of others.
func Decode(data []byte) (*Batch, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("decoding batch: %d bytes, want at most %d", len(data), MaxBytes)
	}
	b, err := scan(data)
	if err != nil {
		return nil, fmt.Errorf("decoding batch: %w", err)
	}
	b.Start, b.End = b.Start.UTC(), b.End.UTC()
	if err := b.Validate(); err != nil {
		return nil, fmt.Errorf("validating batch: %w", err)
	}
	return b, nil
}

// DecodeAck decodes an acknowledgement. Unknown fields are ignored, so that a controller may be newer than its
// agents.
func DecodeAck(data []byte) (*Ack, error) {
	if len(data) > MaxAckBytes {
		return nil, fmt.Errorf("decoding acknowledgement: %d bytes, want at most %d", len(data), MaxAckBytes)
	}
	a := new(Ack)
	if err := json.Unmarshal(data, a); err != nil {
		return nil, fmt.Errorf("decoding acknowledgement: %w", err)
	}
	if err := CheckText("epoch", a.Epoch, MaxName); err != nil {
		return nil, fmt.Errorf("decoding acknowledgement: %w", err)
	}
	if len(a.Names) > maxNamed {
		a.Names = nil
	}
	maps.DeleteFunc(a.Names, func(pod string, names Names) bool { return !names.valid(pod) })
	return a, nil
}

func (n *Names) valid(pod string) bool {
	if errors.Join(CheckText("pod UID", pod, MaxName), CheckText("namespace", n.Namespace, MaxName),
		CheckText("pod", n.Pod, MaxName)) != nil || len(n.Containers) > maxNamed {
		return false
	}
	for id, name := range n.Containers {
		if errors.Join(CheckText("container ID", id, MaxName), CheckText("container", name, MaxName)) != nil {
			return false
		}
	}
	return true
}
