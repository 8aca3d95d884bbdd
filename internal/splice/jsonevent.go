package splice

import (
	"slices"
	"strconv"

	"github.com/cellplane/cellplane/internal/objbytes"
)

func (e *Event) parseJSON() error {
	var object span
	err := eachMember(e.raw, 0, func(key []byte, value span) error {
		switch string(key) {
		case "type":
			s, err := objbytes.String(value.Of(e.raw))
			e.Type = EventType(s)
			return err
		case "object":
			object = value
		}
		return nil
	})
	if err != nil {
		return err
	}
	if e.Type == Error {
		return e.parseJSONStatus(object)
	}
	return e.parseJSONObject(object)
}

func (e *Event) parseJSONStatus(object span) error {
	return eachMember(e.raw[:object.End], object.Start, func(key []byte, value span) (err error) {
		raw := value.Of(e.raw)
		switch string(key) {
		case "code":
			e.Code, err = strconv.Atoi(string(raw))
		case "reason":
			var s []byte
			s, err = objbytes.String(raw)
			e.Reason = string(s)
		}
		return err
	})
}

func (e *Event) parseJSONObject(object span) error {
	var metadata, rows span
	kind := ""
	err := eachMember(e.raw[:object.End], object.Start, func(key []byte, value span) error {
		switch string(key) {
		case "kind":
			s, err := objbytes.String(value.Of(e.raw))
			if err != nil {
				return err
			}
			kind = string(s)
		case "metadata":
			metadata = value
		case "rows":
			rows = value
		}
		if metadata != (span{}) && kind != "" && kind != "Table" {
			return objbytes.ErrStop // what follows is the bulk of the object
		}
		return nil
	})
	if err != nil {
		return err
	}
	e.Object, err = e.parseMetadata(metadata)
	if err != nil || kind != "Table" || rows == (span{}) || string(rows.Of(e.raw)) == "null" {
		return err
	}
	return e.parseRows(rows)
}

// parseMetadata reads an object's metadata and notes the place of its resourceVersion.
func (e *Event) parseMetadata(metadata span) (Object, error) {
	object, version, err := parseJSONMetadata(e.raw, metadata)
	if err != nil {
		return object, err
	}
	place := edit{span: version}
	if version == (span{}) {
		at := metadata.Start + 1
		place = edit{span: span{Start: at, End: at}, before: `"resourceVersion":`, after: ","}
		if e.raw[objbytes.SkipSpace(e.raw, at)] == '}' {
			place.after = ""
		}
	}
	e.json = append(e.json, place)
	return object, nil
}

func (e *Event) parseRows(rows span) error {
	tableVersion := e.Object.ResourceVersion
	first := true
	err := objbytes.EachElement(e.raw[:rows.End], rows.Start, func(row span) error {
		object, err := objbytes.FindMember(e.raw, row, "object")
		if err != nil {
			return err
		}
		if !objbytes.IsObject(object.Of(e.raw)) {
			return errNoObject
		}
		e.objects = append(e.objects, object)
		metadata, err := objbytes.FindMember(e.raw, object, "metadata")
		if err != nil {
			return err
		}
		parsed, err := e.parseMetadata(metadata)
		if err != nil {
			return err
		}
		if first {
			e.Object, first = parsed, false
		}
		return nil
	})
	if e.Object.ResourceVersion == "" {
		e.Object.ResourceVersion = tableVersion
	}
	// The Table's metadata usually, but not by any law, comes before its rows.
	slices.SortFunc(e.json, func(a, b edit) int { return a.Start - b.Start })
	return err
}

// appendJSON writes the event with its edits, and null in the place of the omitted values.
func (e *Event) appendJSON(dst []byte, version string, omit []span) []byte {
	at := 0
	for _, place := range e.json {
		for len(omit) > 0 && omit[0].End <= place.Start {
			dst, at = appendNull(dst, e.raw[at:omit[0].Start]), omit[0].End
			omit = omit[1:]
		}
		if len(omit) > 0 && omit[0].Start <= place.Start {
			continue // inside of what is left out
		}
		dst = append(dst, e.raw[at:place.Start]...)
		dst = append(dst, place.before...)
		dst = objbytes.AppendQuoted(dst, version)
		dst = append(dst, place.after...)
		at = place.End
	}
	for _, left := range omit {
		dst, at = appendNull(dst, e.raw[at:left.Start]), left.End
	}
	dst = append(dst, e.raw[at:]...)
	return append(dst, '\n')
}

func appendNull(dst, before []byte) []byte {
	return append(append(dst, before...), "null"...)
}

// jsonBookmark returns a bookmark; nil if the event has a Table.
func (e *Event) jsonBookmark() ([]byte, error) {
	object, err := objbytes.FindMember(e.raw, span{Start: 0, End: len(e.raw)}, "object")
	if err != nil {
		return nil, err
	}
	bookmark := []byte(`{"type":"BOOKMARK","object":{`)
	for _, name := range []string{"kind", "apiVersion"} {
		at, err := objbytes.FindMember(e.raw, object, name)
		if err != nil || !objbytes.IsString(at.Of(e.raw)) || string(at.Of(e.raw)) == `"Table"` {
			return nil, err
		}
		bookmark = append(append(append(bookmark, '"'), name...), `":`...)
		bookmark = append(append(bookmark, at.Of(e.raw)...), ',')
	}
	return append(bookmark, `"metadata":{"resourceVersion":"1","creationTimestamp":null}}}`...), nil
}
