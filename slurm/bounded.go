package slurm

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Limits of one answer. 100,000 jobs take about 90 MB here, and 250,000 with texts of maxText 500 MB.
const (
	maxEntries = 250_000   // jobs, or nodes
	maxValue   = 1 << 20   // bytes of one job or node, or of another field of the answer
	maxText    = 256 << 20 // bytes of all texts that are kept
)

// list is a field of an answer with many entries, which are decoded one by one.
type list[T any] struct {
	key  string
	size func(*T) int // bytes of the texts of an entry
	all  []T
	text int
}

// entries is a [list] of any type.
type entries interface {
	name() string
	decode(d *json.Decoder) error
}

func (l *list[T]) name() string { return l.key }

func (l *list[T]) decode(d *json.Decoder) error {
	if len(l.all) == maxEntries {
		return fmt.Errorf("there are more than %d %s", maxEntries, l.key)
	}
	var entry T
	if err := d.Decode(&entry); err != nil {
		return err
	}
	l.all = append(l.all, entry)
	if l.text += l.size(&entry); l.text > maxText {
		return fmt.Errorf("the texts of the first %d %s have more than %d MiB", len(l.all), l.key, maxText>>20)
	}
	return nil
}

// bounded is a reader of JSON whose values are of bounded size.
type bounded struct {
	*json.Decoder
	from io.Reader
	read int64
}

var errLarge = fmt.Errorf("a value is larger than %d KiB", maxValue>>10)

// Read implements [io.Reader]. The decoder reads only what it needs to end the value that it is at.
func (b *bounded) Read(p []byte) (n int, err error) {
	left := b.InputOffset() + maxValue - b.read
	if left <= 0 {
		return 0, errLarge
	}
	n, err = b.from.Read(p[:min(int64(len(p)), left)])
	b.read += int64(n)
	return n, err
}

// broken is an error of the connection, not of what came over it.
type broken struct{ error }

// connection marks errors of reading as [broken].
type connection struct{ io.Reader }

// Read implements [io.Reader].
func (c connection) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // EOF is never wrapped
		err = &broken{err}
	}
	return n, err
}

// readAnswer decodes an answer into a pointer to a list or to a small struct. It returns how the answer starts, for
// people, and the errors that it names.
func readAnswer(body io.Reader, into any) (start []byte, errs []said, err error) {
	const shown = 300
	buffered := bufio.NewReader(connection{body})
	start, _ = buffered.Peek(shown)
	start = append([]byte(nil), start...) // the buffer is used again
	l, many := into.(entries)
	if !many {
		data, err := io.ReadAll(io.LimitReader(buffered, maxValue+1))
		if err == nil && len(data) > maxValue {
			err = errLarge
		}
		if err != nil {
			return start, nil, err
		}
		var failed struct{ Errors []said }
		return start, failed.Errors, errors.Join(json.Unmarshal(data, &failed), json.Unmarshal(data, into))
	}
	b := &bounded{from: buffered}
	b.Decoder = json.NewDecoder(b)
	if err := b.delim('{'); err != nil {
		return start, nil, err
	}
	for b.More() {
		key, err := b.Token()
		if err == nil {
			switch key {
			case l.name():
				err = b.list(l)
			case "errors":
				err = b.Decode(&errs)
			default:
				err = b.Decode(&json.RawMessage{})
			}
		}
		if err != nil {
			return start, errs, err
		}
	}
	return start, errs, b.delim('}')
}

func (b *bounded) list(l entries) error {
	first, err := b.Token()
	if err != nil || first == nil {
		return err
	}
	if first != json.Delim('[') {
		return fmt.Errorf("%s is no list", l.name())
	}
	for b.More() {
		if err := l.decode(b.Decoder); err != nil {
			return err
		}
	}
	return b.delim(']')
}

func (b *bounded) delim(want json.Delim) error {
	token, err := b.Token()
	if err == nil && token != want {
		err = fmt.Errorf("want %v, have %v", want, token)
	}
	return err
}

func sizeOf(texts ...string) (n int) {
	const header = 16
	for _, s := range texts {
		n += header + len(s)
	}
	return n
}

func (j *Job) size() int {
	return sizeOf(j.Name, j.Account, j.User, j.Partition, j.Comment, j.AdminComment, j.Reason, j.Reservation, j.ArrayTasks,
		j.Tres, j.Hosts) + sizeOf(j.State...) + sizeOf(j.Flags...)
}

func (n *Node) size() int {
	return sizeOf(n.Name, n.Tres, n.TresUsed) + sizeOf(n.Features...) + sizeOf(n.State...) + sizeOf(n.StateFlags...) +
		sizeOf(n.Partitions...)
}
