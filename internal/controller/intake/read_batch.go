package intake

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// Limits of a body. A batch of ten thousand consumers with random IDs has about one megabyte when compressed.
const (
	maxCompressed = 8 << 20
	firstBuffer   = 64 << 10
	perByte       = 3 // estimated bytes of memory for decoding one byte of JSON
	perRequest    = 768 << 10
)

var (
	buffers = sync.Pool{New: func() any { return new(make([]byte, 0, firstBuffer)) }}
	unzips  = sync.Pool{New: func() any { return &unzipper{in: bufio.NewReader(nil)} }}
)

// unzipper decompresses gzip.
type unzipper struct {
	in  *bufio.Reader
	out gzip.Reader
}

// open starts to read a body. A batch must be a single gzip member, because the setup cost of a member exceeds the
// cost of its bytes.
func (u *unzipper) open(body io.Reader, multistream bool) error {
	u.in.Reset(body)
	if err := u.out.Reset(u.in); err != nil {
		return err
	}
	u.out.Multistream(multistream)
	return nil
}

// Read implements [io.Reader].
func (u *unzipper) Read(p []byte) (int, error) {
	n, err := u.out.Read(p)
	if errors.Is(err, io.EOF) {
		if _, more := u.in.ReadByte(); !errors.Is(more, io.EOF) {
			return n, cmp.Or(more, errFollows)
		}
	}
	return n, err
}

var errFollows = errors.New("data after the end of the gzip member")

// read returns the decompressed body of a request of a node. The caller must call free to release its memory.
func (h *Handler) read(w http.ResponseWriter, r *http.Request, node string) (data []byte, free func(), no *reply) {
	b := &body{memory: h.memory, limit: batch.MaxBytes}
	zipped, no := encodingOf(r)
	if no != nil {
		return nil, b.free, no
	}
	limit := int64(batch.MaxBytes)
	if zipped {
		limit = maxCompressed
	}
	if r.ContentLength > limit {
		return nil, b.free, tooLarge()
	}
	no = h.receive(w, r, b, limit, zipped, false)
	if size := cap(b.data); size > firstBuffer { // large bodies count as several requests
		h.c.Gate.ChargeAgent(node, size/firstBuffer)
	}
	return b.data, b.free, no
}

// receive reads the body of a request into b. The limit is the maximum number of bytes before decompression.
func (h *Handler) receive(w http.ResponseWriter, r *http.Request, b *body, limit int64, zipped, multistream bool,
) (no *reply) {
	if !b.memory.TryAcquire(perRequest) {
		return crowded()
	}
	b.taken, b.buffer = perRequest, buffers.Get().(*[]byte)
	h.hurry(w)
	from := io.Reader(http.MaxBytesReader(w, r.Body, limit))
	if zipped {
		unzip := unzips.Get().(*unzipper)
		defer unzips.Put(unzip)
		if err := unzip.open(from, multistream); err != nil {
			return unreadable(err)
		}
		from = unzip
	}
	if no = b.fill(from); no == nil {
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	}
	return no
}

// body is the content of a body and its reserved memory.
type body struct {
	memory *semaphore.Weighted
	limit  int // in bytes
	taken  int64
	buffer *[]byte // from the pool; nil if no memory is reserved
	data   []byte
}

func (b *body) free() {
	if b.buffer != nil {
		b.memory.Release(b.taken)
		buffers.Put(b.buffer)
	}
}

// fill reads from until EOF. It grows the buffer while memory is available, up to one byte more than the limit.
func (b *body) fill(from io.Reader) *reply {
	b.data = (*b.buffer)[:0]
	for {
		if len(b.data) == cap(b.data) {
			more := min(cap(b.data), b.limit+1-cap(b.data))
			if !b.memory.TryAcquire(perByte * int64(more)) {
				return crowded()
			}
			b.taken += perByte * int64(more)
			b.data = append(make([]byte, 0, cap(b.data)+more), b.data...)
		}
		n, err := from.Read(b.data[len(b.data):cap(b.data)])
		b.data = b.data[:len(b.data)+n]
		switch {
		case len(b.data) > b.limit:
			return tooLarge()
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return unreadable(err)
		}
	}
}

// hurry sets the read deadline of a request, so that a slow client does not occupy its slot. The deadline also
// applies to bodies that no handler reads. Response writers without deadlines, such as those of tests, are ignored.
func (h *Handler) hurry(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(h.c.ReadTimeout))
}

// encodingOf reports whether a body is compressed, or returns the response to an unsupported encoding.
func encodingOf(r *http.Request) (zipped bool, no *reply) {
	unsupported := func(text string) (bool, *reply) {
		return false, refused("malformed", http.StatusUnsupportedMediaType, text)
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return unsupported("the Content-Type must be application/json")
	}
	switch strings.ToLower(strings.Join(r.Header.Values("Content-Encoding"), ",")) {
	case "", "identity":
		return false, nil
	case "gzip":
		return true, nil
	}
	return unsupported("the Content-Encoding must be gzip or absent")
}

func tooLarge() *reply {
	return refused("too_large", http.StatusRequestEntityTooLarge, "the body is too large: the limit is "+
		"16 MiB for a batch (8 MiB compressed) and 32 MiB for a cluster (4 MiB compressed)")
}

func crowded() *reply { return busy(busyAfter, "too many concurrent requests") }

func unreadable(err error) *reply {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge()
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return refused("malformed", http.StatusRequestTimeout, "timeout while reading the body")
	}
	return refused("malformed", http.StatusBadRequest, "reading the body failed")
}
