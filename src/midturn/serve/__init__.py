"""Sessions over HTTP: an API for programs, protocols that other clients speak, and a page for people.

``app`` puts it together. Every request passes ``gate`` (who is it, and from where?), then reads and acts through
``cases`` (which sessions may this person see and use?). Nothing else in this room touches the store.
"""
