package slacktest

import (
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// uploadURL is the first step of an upload.
func (s *Server) uploadURL(form url.Values) reply {
	size, err := strconv.Atoi(form.Get("length"))
	if err != nil || size < 1 || form.Get("filename") == "" {
		return refuse("invalid_arguments")
	}
	s.seq++
	f := &File{ID: "F" + strconv.Itoa(1000000000+s.seq), Name: form.Get("filename")}
	s.uploads[f.ID] = f
	return answer(map[string]any{"ok": true, "upload_url": s.http.URL + uploadPath + f.ID, "file_id": f.ID})
}

// upload takes the bytes: the second step, which needs no token.
func (s *Server) upload(req *http.Request, body []byte) reply {
	f := s.uploads[strings.TrimPrefix(req.URL.Path, uploadPath)]
	if f == nil {
		return reply{status: http.StatusNotFound, body: "no such upload"}
	}
	_, params, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if err != nil {
		return reply{status: http.StatusBadRequest, body: "not a form"}
	}
	part, err := multipart.NewReader(strings.NewReader(string(body)), params["boundary"]).NextPart()
	if err == nil {
		f.Content, err = io.ReadAll(part)
	}
	if err != nil || len(f.Content) == 0 {
		return reply{status: http.StatusBadRequest, body: "no file"}
	}
	return reply{status: http.StatusOK, body: "OK - " + strconv.Itoa(len(f.Content))}
}

// completeUpload puts the file into its channel and thread: the third step.
func (s *Server) completeUpload(form url.Values) reply {
	var files []File
	if json.Unmarshal([]byte(form.Get("files")), &files) != nil || len(files) != 1 {
		return refuse("invalid_arguments")
	}
	id := form.Get("channel_id")
	f, stands := s.uploads[files[0].ID], s.channels[id]
	switch {
	case f == nil || f.Content == nil:
		return refuse("file_not_found")
	case !slices.ContainsFunc(stands, func(m *Message) bool { return m.TS == form.Get("thread_ts") }):
		return refuse("invalid_channel")
	}
	f.Title = files[0].Title
	delete(s.uploads, f.ID)
	s.channels[id] = append(stands, &Message{TS: s.nextTS(), Thread: form.Get("thread_ts"), Files: []File{*f}})
	return answer(map[string]any{"ok": true, "files": []File{*f}})
}
