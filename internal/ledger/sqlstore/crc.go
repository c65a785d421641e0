package sqlstore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Rows carry a checksum of their content, because databases do not detect all bytes that change on disk.

// rowCRC returns the checksum of a row's columns, which are strings, bytes or integers.
func rowCRC(columns ...any) int64 {
	b := make([]byte, 0, 256) //nolint:mnd // most rows are shorter
	for _, column := range columns {
		switch v := column.(type) {
		case string:
			b = append(binary.AppendUvarint(b, uint64(len(v))), v...)
		case []byte:
			b = append(binary.AppendUvarint(b, uint64(len(v))), v...)
		case int64:
			b = binary.LittleEndian.AppendUint64(b, uint64(v))
		default:
			b = fmt.Appendf(b, "%T %v", column, column) // unexpected type of a damaged column
		}
	}
	return int64(Checksum(b))
}

// Checksum returns the CRC-32C of b.
func Checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// sealed appends the checksum of a row to its columns.
func sealed(row []any) []any { return append(row, rowCRC(row...)) }

const sumBytes = 4

// sealBlob appends a checksum of the blob and of the row's key. Including the key detects blobs in the wrong row.
func sealBlob(b []byte, key ...int64) []byte {
	return binary.LittleEndian.AppendUint32(b, blobSum(b, key))
}

// openBlob verifies and removes the checksum that sealBlob appended.
func openBlob(b []byte, key ...int64) ([]byte, error) {
	if len(b) < sumBytes {
		return nil, fmt.Errorf("%w: payload of %d bytes is too short", ledger.ErrDamaged, len(b))
	}
	body := b[:len(b)-sumBytes]
	if blobSum(body, key) != binary.LittleEndian.Uint32(b[len(body):]) {
		return nil, fmt.Errorf("%w: checksum mismatch", ledger.ErrDamaged)
	}
	return body, nil
}

func blobSum(b []byte, key []int64) uint32 {
	var k [8]byte
	sum := uint32(0)
	for _, v := range key {
		binary.LittleEndian.PutUint64(k[:], uint64(v))
		sum = crc32.Update(sum, castagnoli, k[:])
	}
	return crc32.Update(sum, castagnoli, b)
}
