package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"go.etcd.io/bbolt"
)

// sealed begins a value that carries its checksum. Values of releases before had
// none and began with a letter of JSON; no single flipped bit makes one of the other.
const sealed = 0x81

const sealSize = 1 + crc32.Size

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errDamaged = errors.New("its checksum is wrong")

// sum covers the place too: a value under a key that was damaged is another's.
func sum(bucket, key string, value []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(bucket+"\x00"+key+"\x00"), castagnoli), castagnoli, value)
}

// seal returns a copy of the value with its checksum in front.
func seal(bucket, key string, value []byte) []byte {
	out := make([]byte, 0, sealSize+len(value))
	out = binary.LittleEndian.AppendUint32(append(out, sealed), sum(bucket, key, value))
	return append(out, value...)
}

// unseal returns the value within raw, which is raw itself where an older release
// wrote it.
func unseal(bucket, key string, raw []byte) ([]byte, error) {
	switch {
	case len(raw) == 0 || raw[0] >= ' ' && raw[0] < 0x7f:
		return raw, nil
	case raw[0] != sealed || len(raw) < sealSize:
		return nil, errDamaged
	}
	if v := raw[sealSize:]; binary.LittleEndian.Uint32(raw[1:]) == sum(bucket, key, v) {
		return v, nil
	}
	return nil, errDamaged
}

// SetAside moves a value that cannot be read, and why, to the bucket Damaged, under
// the bucket's name, a slash and the key, in place of what was set aside from there
// before. It is logged as an error, which says what is lost.
func (tx *Tx) SetAside(bucket, key string, why error) error {
	aside := bucket + "/" + key
	raw := tx.bucket(bucket).Get([]byte(key))
	if v, err := unseal(bucket, key, raw); err == nil {
		raw = v
	}
	if err := errors.Join(tx.Put(Damaged, aside, raw), tx.Delete(bucket, key)); err != nil {
		return fmt.Errorf("set the damaged %s aside: %w", aside, err)
	}
	tx.store.log.Error("A part of the state is damaged: it is lost and begun anew, the rest is kept.",
		"file", tx.store.path, "part", aside, "bytes", len(raw), "kept_in_bucket", Damaged, "err", why)
	return nil
}

// SetAside does so in a transaction of its own. Where the disk does not take it the
// value stays where it is until it is overwritten, which is logged.
func (s *Store) SetAside(bucket, key string, why error) {
	if err := s.Update(func(tx *Tx) error { return tx.SetAside(bucket, key, why) }); err != nil {
		s.log.Error("A part of the state is damaged, and cannot be kept: it is begun anew.",
			"file", s.path, "part", bucket+"/"+key, "damage", why, "err", err)
	}
}

// setDamagedAside looks at all checksums.
func (s *Store) setDamagedAside() error {
	type place struct{ bucket, key string }
	var damaged []place
	err := s.db.View(func(tx *bbolt.Tx) error {
		for _, b := range buckets {
			if b == Damaged || tx.Bucket([]byte(b)) == nil {
				continue
			}
			err := tx.Bucket([]byte(b)).ForEach(func(k, raw []byte) error {
				schema := b == Meta && string(k) == schemaKey // prepare's, and mark's
				if _, err := unseal(b, string(k), raw); err != nil && !schema {
					damaged = append(damaged, place{b, string(k)})
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	for _, p := range damaged {
		s.SetAside(p.bucket, p.key, errDamaged)
	}
	return err
}
