package batch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/kubenergy/kubenergy/energy"
)

// What an acknowledgement may hold. Names beyond are left out: whether energy was booked does not depend on them.
const (
	MaxAckBytes = 1 << 20
	maxNamed    = 10_000 // pods, and containers of one
)

// Encode returns b as it travels.
func Encode(b *Batch) ([]byte, error) {
	out := *b
	if out.Shares == nil {
		out.Shares = []energy.Share{}
	}
	return encode(&out)
}

// EncodeAck returns an acknowledgement as it travels.
func EncodeAck(a *Ack) ([]byte, error) { return encode(a) }

func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // paths of control groups hold & and <
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encoding: %w", err)
	}
	return buf.Bytes(), nil
}

// Decode reads a batch and validates it. It is strict: a field that is not known may change the meaning of the others.
func Decode(data []byte) (*Batch, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("decoding batch: %d bytes: at most %d", len(data), MaxBytes)
	}
	type plain Batch
	b := new(Batch)
	// Shares are read one by one: a few bytes of JSON each could be made to cost a hundred times that in memory.
	wire := struct {
		*plain
		Shares json.RawMessage `json:"shares"`
	}{plain: (*plain)(b)}
	if err := decodeAll(data, &wire); err != nil {
		return nil, fmt.Errorf("decoding batch: %w", err)
	}
	shares, err := decodeShares(wire.Shares)
	if err != nil {
		return nil, fmt.Errorf("decoding shares: %w", err)
	}
	b.Shares = shares
	b.Start, b.End = b.Start.UTC(), b.End.UTC()
	if err := b.Validate(); err != nil {
		return nil, fmt.Errorf("validating batch: %w", err)
	}
	return b, nil
}

func decodeAll(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the value")
	}
	return nil
}

func decodeShares(data json.RawMessage) ([]energy.Share, error) {
	if len(data) == 0 || string(data) == "null" {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if open, err := dec.Token(); err != nil || open != json.Delim('[') {
		return nil, errors.New("not a list")
	}
	shares := []energy.Share{}
	for dec.More() {
		if len(shares) == MaxShares {
			return nil, fmt.Errorf("more than %d", MaxShares)
		}
		var s energy.Share
		if err := dec.Decode(&s); err != nil {
			return nil, err
		}
		shares = append(shares, s)
	}
	return shares, nil
}

// DecodeAck reads an acknowledgement. Fields that it does not know are left out, so that a central unit may be newer than
// its agents.
func DecodeAck(data []byte) (*Ack, error) {
	if len(data) > MaxAckBytes {
		return nil, fmt.Errorf("decoding acknowledgement: %d bytes: at most %d", len(data), MaxAckBytes)
	}
	a := new(Ack)
	if err := json.Unmarshal(data, a); err != nil {
		return nil, fmt.Errorf("decoding acknowledgement: %w", err)
	}
	if err := checkText("epoch", a.Epoch, MaxName); err != nil {
		return nil, fmt.Errorf("decoding acknowledgement: %w", err)
	}
	if len(a.Names) > maxNamed {
		a.Names = nil
	}
	for pod, names := range a.Names {
		if !names.valid(pod) {
			delete(a.Names, pod)
		}
	}
	return a, nil
}

func (n *Names) valid(pod string) bool {
	if errors.Join(checkText("pod UID", pod, MaxName), checkText("namespace", n.Namespace, MaxName), checkText("pod", n.Pod, MaxName)) != nil ||
		len(n.Containers) > maxNamed {
		return false
	}
	for id, name := range n.Containers {
		if errors.Join(checkText("container ID", id, MaxName), checkText("container", name, MaxName)) != nil {
			return false
		}
	}
	return true
}
