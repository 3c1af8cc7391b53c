package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// The format of bbolt's files, version 2: pages with a head of 16 bytes and after it
// their elements, which say where in the page their keys and values are.
const (
	pageHead    = 16
	elementSize = 16
	bucketHead  = 16 // of the value that is a bucket; its page follows where it has none in the file

	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10
	bucketEntry  = 0x01 // flag of a leaf's element

	metaMagic  = 0xED0CDAED
	metaSize   = 64
	noFreelist = 1<<64 - 1

	deepest = 64 // pages from the root to a leaf: a damaged file may go round in circles
)

var errShape = errors.New("a page is not as the database writes it")

// shape is the content of a database's file.
type shape struct {
	file []byte
	size uint64 // of a page
	seen map[uint64]bool
}

// checkShape reports an error unless all that the pages of a database say of places is
// within the file: bbolt trusts it, and its own check reads it in a goroutine where a
// place outside the file is a crash of the process.
func checkShape(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	file, err := io.ReadAll(io.NewSectionReader(f, 0, info.Size()))
	if err != nil {
		return err
	}
	if len(file) < pageHead+metaSize {
		return errShape
	}
	s := &shape{file: file, size: uint64(binary.LittleEndian.Uint32(file[pageHead+8:])), seen: map[uint64]bool{}}
	if s.size < 512 || s.size > 64<<10 {
		s.size = uint64(os.Getpagesize()) // the first head is damaged, and bbolt tries this too
	}
	root, freelist, ok := s.meta()
	if !ok {
		return fmt.Errorf("%w: neither of its heads", errShape)
	}
	if freelist != noFreelist {
		if err := s.list(freelist); err != nil {
			return err
		}
	}
	return s.page(root, 0)
}

// meta returns where the newest head that is whole says that root and list of free pages are.
func (s *shape) meta() (root, freelist uint64, ok bool) {
	var newest uint64
	for at := range uint64(2) {
		begin := at*s.size + pageHead
		if begin+metaSize > uint64(len(s.file)) {
			break
		}
		m := s.file[begin : begin+metaSize]
		sum := fnv.New64a()
		sum.Write(m[:metaSize-8]) // never fails
		if binary.LittleEndian.Uint32(m) != metaMagic || binary.LittleEndian.Uint64(m[metaSize-8:]) != sum.Sum64() {
			continue
		}
		if txid := binary.LittleEndian.Uint64(m[48:]); !ok || txid > newest {
			newest, ok = txid, true
			root, freelist = binary.LittleEndian.Uint64(m[16:]), binary.LittleEndian.Uint64(m[32:])
		}
	}
	return root, freelist, ok
}

// bytes returns a page with those that it goes on in.
func (s *shape) bytes(id uint64) ([]byte, error) {
	pages := uint64(len(s.file)) / s.size
	if id < 2 || id >= pages {
		return nil, fmt.Errorf("%w: page %d of %d", errShape, id, pages)
	}
	p := s.file[id*s.size:]
	more := uint64(binary.LittleEndian.Uint32(p[12:]))
	if binary.LittleEndian.Uint64(p) != id || more >= pages-id {
		return nil, fmt.Errorf("%w: page %d", errShape, id)
	}
	return p[:(more+1)*s.size], nil
}

func (s *shape) list(id uint64) error {
	p, err := s.bytes(id)
	if err != nil {
		return err
	}
	count, begin := uint64(binary.LittleEndian.Uint16(p[10:])), uint64(pageHead)
	if count == 0xFFFF { // more than fit in the head: the first entry is how many
		count, begin = binary.LittleEndian.Uint64(p[pageHead:]), pageHead+8
	}
	if binary.LittleEndian.Uint16(p[8:]) != freelistPage || count > (uint64(len(p))-begin)/8 {
		return fmt.Errorf("%w: page %d of the free pages", errShape, id)
	}
	return nil
}

func (s *shape) page(id uint64, depth int) error {
	if s.seen[id] || depth > deepest {
		return fmt.Errorf("%w: page %d has its place twice", errShape, id)
	}
	s.seen[id] = true
	p, err := s.bytes(id)
	if err != nil {
		return err
	}
	return s.elements(p, depth)
}

// elements looks at what a page of keys consists of, wherever the page is.
func (s *shape) elements(p []byte, depth int) error {
	if len(p) < pageHead {
		return errShape
	}
	kind, count := binary.LittleEndian.Uint16(p[8:]), int(binary.LittleEndian.Uint16(p[10:]))
	if kind != branchPage && kind != leafPage || pageHead+count*elementSize > len(p) {
		return fmt.Errorf("%w: one of kind %#x with %d elements", errShape, kind, count)
	}
	for i := range count {
		e := p[pageHead+i*elementSize:]
		var err error
		if kind == branchPage {
			err = s.branch(e, depth)
		} else {
			err = s.leaf(e, depth)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// branch looks at an element of a branch and at the page below it.
func (s *shape) branch(e []byte, depth int) error {
	pos, key := uint64(binary.LittleEndian.Uint32(e)), uint64(binary.LittleEndian.Uint32(e[4:]))
	if pos+key > uint64(len(e)) {
		return fmt.Errorf("%w: a key of a branch", errShape)
	}
	return s.page(binary.LittleEndian.Uint64(e[8:]), depth+1)
}

// leaf looks at an element of a leaf, and into the bucket that it may be.
func (s *shape) leaf(e []byte, depth int) error {
	flags, pos := binary.LittleEndian.Uint32(e), uint64(binary.LittleEndian.Uint32(e[4:]))
	key, size := uint64(binary.LittleEndian.Uint32(e[8:])), uint64(binary.LittleEndian.Uint32(e[12:]))
	if pos+key+size > uint64(len(e)) {
		return fmt.Errorf("%w: an entry of a leaf", errShape)
	}
	if flags&bucketEntry == 0 {
		return nil
	}
	value := e[pos+key : pos+key+size]
	if len(value) < bucketHead {
		return fmt.Errorf("%w: a bucket", errShape)
	}
	if root := binary.LittleEndian.Uint64(value); root != 0 {
		return s.page(root, depth+1)
	}
	return s.elements(value[bucketHead:], depth+1)
}
