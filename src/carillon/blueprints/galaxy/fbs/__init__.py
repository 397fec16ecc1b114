"""What `flatc --python` made of notification.fbs, checked in and never edited."""
