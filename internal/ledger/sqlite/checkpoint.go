package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// The log is checkpointed when it reaches logBytes. If long queries prevent the checkpoint from completing, it is
// retried after another logBytes. When the log exceeds longLogBytes, subsequent transactions wait for these
// queries.
const (
	logBytes     = 8 << 20
	longLogBytes = 128 << 20
)

// committed checkpoints the log if it is long. The caller must ensure that no transaction writes meanwhile.
func (s *Store) committed(ctx context.Context, conn *sql.Conn) error {
	info, err := os.Stat(s.path + walSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	size := info.Size()
	if size < s.tried {
		s.tried = 0 // the log was restarted
	}
	if size < s.tried+s.logBytes {
		return nil
	}
	s.tried = size
	mode := "PASSIVE"
	if size > longLogBytes {
		mode = "RESTART"
	}
	return s.checkpoint(ctx, conn, mode)
}

func (s *Store) checkpoint(ctx context.Context, conn *sql.Conn, mode string) error {
	l, err := readLog(s.path + walSuffix)
	if err != nil || l == nil {
		return err
	}
	if l.bad != "" {
		return fmt.Errorf("the write-ahead log of the ledger is corrupt: %s: skipping the checkpoint", l.bad)
	}
	if err := s.writeMark(l); err != nil {
		return fmt.Errorf("writing the checkpoint mark of the ledger: %w", err)
	}
	var busy, frames, moved int
	if err := conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint("+mode+")").Scan(&busy, &frames, &moved); err != nil {
		return fmt.Errorf("running a checkpoint of the ledger: %w", err)
	}
	return nil
}
