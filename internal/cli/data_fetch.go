package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/scenarios"
)

// rawServer is where GitHub serves the files of a commit.
const rawServer = "https://raw.githubusercontent.com"

// partSuffix ends the name of a file that is not yet whole.
const partSuffix = ".part"

// What is in the place of a file.
const (
	thereYes     = "yes"
	thereNo      = "no"
	thereAnother = "another" // its sum is not that of the manifest
)

// there reports whether a file is there.
func there(path string, file *scenarios.DataFile) (string, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return thereNo, nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	if hex.EncodeToString(sum.Sum(nil)) != file.SHA256 {
		return thereAnother, nil
	}
	return thereYes, nil
}

// fetcher gets files of the manifest into a folder.
type fetcher struct {
	dir, mirror string
	client      *http.Client
	attempts    int
	pause       time.Duration // before the second attempt; it doubles
	timeout     time.Duration // with a server that sends nothing
}

func newFetcher(dir, mirror string) *fetcher {
	// Sizes and places in a file are those of what is stored, so nothing is to be packed on the way.
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableCompression = true
	return &fetcher{
		dir: dir, mirror: strings.TrimSuffix(mirror, "/"), client: &http.Client{Transport: transport}, attempts: 4,
		pause: time.Second, timeout: time.Minute,
	}
}

// lasting is what another attempt would not change.
type lasting struct{ error }

func (e lasting) Unwrap() error { return e.error }

// fetch gets one file unless it is there. It reports whether it was fetched.
func (f *fetcher) fetch(ctx context.Context, file *scenarios.DataFile, say io.Writer) (fetched bool, err error) {
	path := filepath.Join(f.dir, filepath.FromSlash(file.Name))
	state, err := there(path, file)
	switch {
	case err != nil:
		return false, err
	case state == thereYes:
		fmt.Fprintf(say, "%s is there\n", file.Name)
		return false, nil
	case state == thereAnother:
		fmt.Fprintf(say, "%s is there with another sum, and is replaced\n", file.Name)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return false, err
	}
	fmt.Fprintf(say, "fetching %s, %s\n", file.Name, sizeText(file.Bytes))
	pause := f.pause
	for attempt := 1; ; attempt++ {
		err := f.attempt(ctx, file, path+partSuffix)
		if err == nil {
			return true, os.Rename(path+partSuffix, path)
		}
		if _, last := errors.AsType[lasting](err); last || attempt == f.attempts || ctx.Err() != nil {
			return false, f.giveUp(err, path+partSuffix)
		}
		fmt.Fprintf(say, "%s: %v: trying again\n", file.Name, err)
		kube.Pause(ctx, pause)
		pause *= 2
	}
}

// giveUp leaves what there is of a file to the next command, and says what to do about the error.
func (f *fetcher) giveUp(err error, part string) error {
	info, missing := os.Stat(part)
	kept := missing == nil && info.Size() > 0
	if missing == nil && !kept {
		_ = os.Remove(part) // an empty file, which says nothing
	}
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w: make room in %s and give the same command again, which goes on where it was", err, f.dir)
	case kept:
		return fmt.Errorf("%w: %d bytes are kept, and the same command goes on from there", err, info.Size())
	}
	return err
}

// attempt adds to the part that is there what is missing of the file, and checks the whole.
func (f *fetcher) attempt(ctx context.Context, file *scenarios.DataFile, part string) (err error) {
	out, err := os.OpenFile(part, os.O_RDWR|os.O_CREATE, 0o644) //nolint:gosec // for all who may read the folder
	if err != nil {
		return lasting{err}
	}
	defer func() { err = cmp.Or(err, out.Close()) }()
	sum := sha256.New()
	have, err := takeUp(out, file.Bytes, sum)
	if err != nil {
		return lasting{err}
	}
	if have < file.Bytes {
		if err := f.download(ctx, file, out, have, sum); err != nil {
			return err
		}
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != file.SHA256 {
		err := cmp.Or(restart(out, sum), fmt.Errorf("the SHA-256 sum is %s: want %s; nothing is "+
			"kept", got, file.SHA256))
		if have > 0 {
			return err // what was there already may have been another file's
		}
		return lasting{err}
	}
	if err := out.Sync(); err != nil {
		return lasting{err}
	}
	return nil
}

// takeUp sums up the part that is there, and returns how long it is. One that is too long is emptied.
func takeUp(out *os.File, most int64, sum hash.Hash) (have int64, err error) {
	info, err := out.Stat()
	if err != nil {
		return 0, err
	}
	if info.Size() > most {
		return 0, out.Truncate(0)
	}
	return io.CopyN(sum, out, info.Size())
}

// download asks for what comes after the first bytes.
func (f *fetcher) download(ctx context.Context, file *scenarios.DataFile, out *os.File, have int64, sum hash.Hash,
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	url := file.URL
	if rest, ok := strings.CutPrefix(url, rawServer); ok && f.mirror != "" {
		url = f.mirror + rest
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return lasting{err}
	}
	if have > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", have))
	}
	alarm := time.AfterFunc(f.timeout, func() {
		cancel(fmt.Errorf("the server has sent nothing for %v", f.timeout))
	})
	defer alarm.Stop()
	answer, err := f.client.Do(request)
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	defer answer.Body.Close()
	switch code := answer.StatusCode; {
	case code == http.StatusPartialContent && have > 0 && strings.HasPrefix(answer.Header.Get("Content-Range"),
		fmt.Sprintf("bytes %d-", have)):
	case code == http.StatusOK: // all of it
		if have, err = 0, restart(out, sum); err != nil {
			return lasting{err}
		}
	case code == http.StatusPartialContent || code == http.StatusRequestedRangeNotSatisfiable:
		return errors.Join(fmt.Errorf("%s does not go on at byte %d", url, have), restart(out, sum))
	case code >= 500 || code == http.StatusTooManyRequests:
		return fmt.Errorf("%s answers %s", url, answer.Status)
	default:
		return lasting{fmt.Errorf("%s answers %s", url, answer.Status)}
	}
	return receive(ctx, file, answer.Body, out, sum, have, func() { alarm.Reset(f.timeout) })
}

// receive appends what comes to the part. alive is called whenever something does.
func receive(ctx context.Context, file *scenarios.DataFile, body io.Reader, out *os.File, sum hash.Hash, have int64,
	alive func(),
) error {
	buffer := make([]byte, 64<<10)
	for {
		n, err := body.Read(buffer)
		alive()
		if have += int64(n); have > file.Bytes {
			return lasting{cmp.Or(restart(out, sum), fmt.Errorf("the server sends more than the %d bytes that are "+
				"wanted; "+
				"nothing is kept", file.Bytes))}
		}
		if _, failed := out.Write(buffer[:n]); failed != nil {
			return lasting{failed}
		}
		_, _ = sum.Write(buffer[:n]) // a hash never fails
		switch {
		case errors.Is(err, io.EOF) && have == file.Bytes:
			return nil
		case context.Cause(ctx) != nil:
			return context.Cause(ctx)
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return fmt.Errorf("the server ended at byte %d of %d", have, file.Bytes)
		case err != nil:
			return err
		}
	}
}

// restart empties the part.
func restart(out *os.File, sum hash.Hash) error {
	sum.Reset()
	if _, err := out.Seek(0, io.SeekStart); err != nil {
		return err
	}
	info, err := out.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	return out.Truncate(0)
}
