package sqlite_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/internal/ledger/sqlite"
)

func TestFolderIsMissing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	_, err := sqlite.Open(t.Context(), filepath.Join(dir, "ledger.db"), sqlite.Options{})
	if err == nil || !strings.Contains(err.Error(), "directory "+dir+" does not exist") ||
		strings.Contains(err.Error(), ".lock") {
		t.Errorf("%v", err)
	}
}
