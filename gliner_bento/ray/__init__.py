"""The server on Ray Serve: `app.py` is the application, `serve.py` what `gliner-bento serve --backend ray` runs."""
